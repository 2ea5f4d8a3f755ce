//! Deadlines of the protocol, short ones, against the library.

mod support;

use sluicegate_ws::config::Config;
use sluicegate_ws::server::{Server, Stopper};
use sluicegate_ws::worker::Timing;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;
use support::{Client, Frame, PING, PONG, masked};

struct Running {
    address: SocketAddr,
    stopper: Stopper,
    thread: JoinHandle<()>,
}

impl Running {
    fn start(timing: Timing) -> Self {
        let config = Config::development(([127, 0, 0, 1], 0).into()).expect("it is loopback");
        let server = Server::bind(Config { timing, ..config }).expect("some port is free");
        let (address, stopper) = (server.address(), server.stopper().expect("a descriptor"));
        let thread = std::thread::spawn(move || server.run().expect("it ends well"));
        Self { address, stopper, thread }
    }

    fn stop(mut self) {
        self.stopper.stop().expect("it runs");
        self.thread.join().expect("it does not panic");
    }
}

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn a_request_that_does_not_come_is_given_up() {
    let server = Running::start(Timing { request: SHORT, ..Timing::default() });
    let mut silent = Client::connect(server.address);
    assert!(silent.is_over());
    let mut slow = Client::connect(server.address);
    slow.send(b"GET /health HT");
    assert_eq!(slow.response().status, 408);
    assert!(slow.is_over());
    server.stop();
}

#[test]
fn an_idle_connection_is_given_up() {
    let server = Running::start(Timing { idle: SHORT, ..Timing::default() });
    let mut client = Client::connect(server.address);
    assert_eq!(client.request("GET /health", "").status, 200);
    assert!(client.is_over());
    server.stop();
}

#[test]
fn a_client_without_a_sign_of_life_is_closed_and_one_with_is_not() {
    let timing = Timing { activity: SHORT, pong: SHORT * 40, ..Timing::default() };
    let server = Running::start(timing);
    let connect = || {
        let mut client = Client::connect(server.address);
        client.upgrade("/app/app-key?protocol=7");
        assert!(client.text().contains("connection_established"));
        client
    };
    let (mut alive, mut dead) = (connect(), connect());
    for _ in 0..10 {
        assert!(alive.text().contains("pusher:ping"));
        alive.send(&masked(0x81, br#"{"event":"pusher:pong","data":{}}"#));
    }
    assert!(dead.text().contains("pusher:ping"));
    assert!(dead.text().contains(r#""code":4201"#));
    assert_eq!(dead.frame(), Frame::Close(4201));
    assert!(dead.is_over());
    assert!(alive.text().contains("pusher:ping"));
    alive.send(&masked(0x81, PING.as_bytes()));
    assert_eq!(alive.text(), PONG);
    drop((alive, dead));
    server.stop();
}

#[test]
fn peers_that_do_not_go_hold_the_server_no_longer_than_its_grace() {
    let server = Running::start(Timing { grace: SHORT, ..Timing::default() });
    let mut stuck = Client::connect(server.address);
    stuck.upgrade("/app/app-key?protocol=7");
    server.stop();
    assert!(stuck.text().contains("connection_established"));
    assert!(stuck.text().contains(r#""code":4200"#));
    assert_eq!(stuck.frame(), Frame::Close(4200));
}

#[test]
fn asked_twice_it_stops_at_once() {
    let timing = Timing { grace: Duration::from_secs(3600), ..Timing::default() };
    let mut server = Running::start(Timing { linger: timing.grace, ..timing });
    let mut stuck = Client::connect(server.address);
    stuck.upgrade("/app/app-key?protocol=7");
    server.stopper.stop().unwrap();
    server.stop();
}
