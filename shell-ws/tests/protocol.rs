//! The protocol over real sockets: what a client and a publisher see.

mod support;

use support::{Frame, PING, PONG, Server, event, masked, post};

#[test]
fn the_first_frame_has_the_shape_that_clients_demand() {
    let server = Server::start();
    let mut client = server.connect();
    client.upgrade("/app/app-key?protocol=7&client=js&version=8.6.0&flash=false");
    let value: serde_json::Value = serde_json::from_str(&client.text()).unwrap();
    assert_eq!(value["event"], "pusher:connection_established");
    assert!(value.get("channel").is_none());
    let data: serde_json::Value = serde_json::from_str(value["data"].as_str().unwrap()).unwrap();
    assert!(sluicegate_wire::rest::check_socket_id(data["socket_id"].as_str().unwrap()));
    assert_eq!(data["activity_timeout"], 120);
}

#[test]
fn pings_of_both_levels_are_answered_on_an_idle_connection() {
    let server = Server::start();
    let (mut client, _) = server.client();
    assert_eq!(client.send(&masked(0x89, b"alive?")).frame(), Frame::Pong(b"alive?".to_vec()));
    assert_eq!(client.ask(PING), PONG);
}

#[test]
fn an_event_reaches_its_channel_but_not_its_publisher() {
    let server = Server::start();
    let ((mut one, id), (mut two, _), (mut other, _)) =
        (server.client(), server.client(), server.client());
    one.subscribe("news");
    two.subscribe("news");
    other.subscribe("else");
    assert_eq!(server.publish(&event("news", "for all")), 200);
    let expected = r#"{"event":"e","channel":"news","data":"for all"}"#;
    assert_eq!((one.text(), two.text()), (expected.to_owned(), expected.to_owned()));
    let body = serde_json::json!({
        "name": "e", "channels": ["news", "else"], "data": "{\"a\":1}", "socket_id": id,
    });
    assert_eq!(server.publish(&body.to_string()), 200);
    let expected = r#"{"event":"e","channel":"news","data":"{\"a\":1}"}"#;
    assert_eq!(two.text(), expected);
    assert_eq!(other.text(), expected.replace("news", "else"));
    assert_eq!(one.ask(PING), PONG, "nothing came before this");
    assert_eq!(server.column("expected"), 4);
}

#[test]
fn who_unsubscribes_gets_no_more() {
    let server = Server::start();
    let (mut client, _) = server.client();
    client.subscribe("news");
    let leave = br#"{"event":"pusher:unsubscribe","data":{"channel":"news"}}"#;
    client.send(&masked(0x81, leave));
    assert_eq!(client.ask(PING), PONG, "commands are handled in order");
    assert_eq!(server.publish(&event("news", "unheard")), 200);
    assert_eq!(client.ask(PING), PONG);
    client.subscribe("news");
    assert_eq!(server.publish(&event("news", "heard")), 200);
    assert!(client.text().contains("heard"));
}

#[test]
fn a_message_in_pieces_is_one_message() {
    let server = Server::start();
    let (mut client, _) = server.client();
    client.send(&masked(0x01, br#"{"event":"pus"#));
    client.send(&masked(0x89, b"between"));
    client.send(&masked(0x00, br#"her:ping","#));
    client.send(&masked(0x80, br#""data":{}}"#));
    assert_eq!(client.frame(), Frame::Pong(b"between".to_vec()));
    assert_eq!(client.text(), PONG);
}

#[test]
fn one_byte_at_a_time_is_enough() {
    let server = Server::start();
    let mut client = server.connect();
    client.stream.set_nodelay(true).unwrap();
    for byte in post(&event("news", "slow")) {
        client.send(&[byte]);
    }
    assert_eq!(client.response().status, 200);
    let (mut client, _) = server.client();
    client.stream.set_nodelay(true).unwrap();
    for byte in masked(0x81, PING.as_bytes()) {
        client.send(&[byte]);
    }
    assert_eq!(client.text(), PONG);
}

#[test]
fn requests_in_one_write_are_answered_in_order() {
    let server = Server::start();
    let (mut subscriber, _) = server.client();
    subscriber.subscribe("news");
    let mut client = server.connect();
    let mut requests = Vec::new();
    for n in 0..300 {
        requests.extend(post(&event("news", &n.to_string())));
        requests.extend(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    client.send(&requests);
    for n in 0..300 {
        let (published, health) = (client.response(), client.response());
        assert_eq!((published.status, published.body.as_str()), (200, "{}"), "{n}");
        assert_eq!((health.status, health.body.as_str()), (200, "alive\n"), "{n}");
        assert!(subscriber.text().contains(&format!(r#""data":"{n}""#)));
    }
}

#[test]
fn what_came_before_a_fin_is_answered() {
    let server = Server::start();
    let mut client = server.connect();
    client.send(&post(&event("news", "last words"))).finish();
    assert_eq!(client.response().status, 200);
    assert!(client.is_over());
    let (mut client, _) = server.client();
    client.send(&masked(0x81, PING.as_bytes())).finish();
    assert_eq!(client.text(), PONG);
    assert_eq!(client.frame(), Frame::Close(1000));
    assert!(client.is_over());
}

#[test]
fn a_close_is_answered_before_the_fin() {
    let server = Server::start();
    let (mut client, _) = server.client();
    assert_eq!(client.send(&masked(0x88, &1000_u16.to_be_bytes())).frame(), Frame::Close(1000));
    assert!(client.is_over());
}

#[test]
fn bad_handshakes_are_closed_with_their_code() {
    let server = Server::start();
    for (target, code) in [
        ("/app/nobody?protocol=7", 4001),
        ("/app/app-key/more?protocol=7", 4005),
        ("/app/app-key?protocol=99", 4007),
        ("/app/app-key", 4008),
    ] {
        let mut client = server.connect();
        client.upgrade(target);
        assert!(client.text().contains(&format!(r#""code":{code}"#)), "{target}");
        assert_eq!(client.frame(), Frame::Close(code));
        assert!(client.is_over(), "{target}");
    }
}

#[test]
fn two_hundred_connects_at_once_are_all_served() {
    let server = Server::start();
    // They all come while the server looks away: it is told of them once.
    server.signal("STOP");
    let mut clients: Vec<_> = (0..200).map(|_| server.connect()).collect();
    server.signal("CONT");
    for client in &mut clients {
        client.upgrade("/app/app-key?protocol=7");
    }
    for client in &mut clients {
        assert!(client.text().contains("connection_established"));
        client.subscribe("news");
    }
    assert_eq!(server.publish(&event("news", "all of you")), 200);
    for client in &mut clients {
        assert!(client.text().contains("all of you"));
    }
    assert_eq!(server.column("delivered"), 200);
}

#[test]
fn a_mebibyte_in_one_write_is_read_to_its_end() {
    let server = Server::start();
    let (mut client, _) = server.client();
    let message = masked(0x82, &[7; 60 << 10]);
    let mut burst = Vec::new();
    while burst.len() < 1 << 20 {
        burst.extend(&message);
    }
    burst.extend(masked(0x81, PING.as_bytes()));
    client.send(&burst);
    assert_eq!(client.text(), PONG);
}

#[test]
fn pipelined_commands_lose_no_answer() {
    const COUNT: usize = 5_000;
    let server = Server::start();
    let (mut client, _) = server.client();
    let ping = masked(0x81, PING.as_bytes());
    let mut writer = client.stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        use std::io::Write;
        writer.write_all(&ping.repeat(COUNT)).unwrap();
    });
    for n in 0..COUNT {
        assert_eq!(client.text(), PONG, "{n}");
    }
    writing.join().unwrap();
}

#[test]
fn what_merely_comes_at_once_is_not_overload() {
    let server = Server::start();
    let channels: Vec<String> = (0..100).map(|n| format!("c{n}")).collect();
    let wide = serde_json::json!({ "name": "e", "channels": channels, "data": "" }).to_string();
    let mut clients: Vec<_> = (0..400).map(|_| server.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(&if n % 20 == 0 { post(&wide) } else { post(&event("news", "")) });
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(server.column("sequenced"), 20 * 100 + 380);
}
