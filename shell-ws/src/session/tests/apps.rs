//! Other apps while connections are there.

use super::*;
use crate::directory::Directory;

fn app(id: &str) -> App {
    App { id: id.to_owned(), key: format!("key-{id}"), ..App::development() }
}

/// Serves other apps, as a loop does.
fn serve(world: &mut World, directory: &mut Directory, apps: Vec<App>) {
    directory.change(apps).unwrap();
    world.shard.prepare(directory.places()).unwrap();
    let ends = world.shard.serve(directory.places());
    for peer in 0..world.peers.len() {
        if let Some(session) = world.peers[peer].session.as_mut().filter(|_| ends) {
            session.apps_changed(&mut world.shard);
        }
    }
    while world.run() {}
}

#[test]
fn connections_of_an_app_that_goes_are_told_so_after_what_waits_and_its_topics_end() {
    let mut world = World::new();
    let mut directory = Directory::new(&[App::development()]);
    serve(&mut world, &mut directory, vec![App::development(), app("2")]);
    let (stays, _) = world.client();
    let goes = world.connect();
    world.handshake(goes, "/app/key-2?protocol=7");
    for peer in [stays, goes] {
        assert!(world.subscribe(peer, "cache-a")[0].contains("subscription_succeeded"));
    }
    let publisher = world.connect();
    let of = |id: &str| {
        let (body, path) = (event(&["cache-a"], "1"), format!("/apps/{id}/events"));
        let (path, bytes) = (path.as_str(), body.as_bytes());
        let signed = Signed { method: "POST", path, stripped: path, query: "", body: bytes };
        let query = sign(&if id == "2" { app("2") } else { App::development() }, signed, NOW);
        let length = body.len();
        format!("POST {path}?{query} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    for id in ["2", "1001"] {
        world.feed(publisher, of(id).as_bytes());
        assert!(world.http(publisher).starts_with("HTTP/1.1 200 "));
    }
    let (_, tenant) = world.shard.apps.by_id("2").unwrap();
    assert!(world.shard.broker.find_topic(tenant, "cache-a").is_some());
    world.frames(stays);
    serve(&mut world, &mut directory, vec![App::development()]);
    let told = world.frames(goes);
    assert!(told[0].contains("\"data\":\"1\""), "{told:?}");
    assert!(told[1].contains("\"code\":4001") && told[2].starts_with("close 4001"), "{told:?}");
    assert!(world.peers[goes].is_shut);
    assert_eq!(world.frames(stays), [""; 0]);
    world.end_of_input(goes);
    world.shard.retire_some();
    assert!(world.shard.broker.find_topic(tenant, "cache-a").is_none(), "with what it kept");
    assert_eq!(world.shard.next_deadline(), Some(Instant::ZERO), "perhaps there is more");
    world.shard.retire_some();
    assert_eq!(world.shard.next_deadline(), None);
    world.feed(publisher, of("2").as_bytes());
    assert!(world.http(publisher).starts_with("HTTP/1.1 404 "));
    world.feed(publisher, of("1001").as_bytes());
    assert!(world.http(publisher).starts_with("HTTP/1.1 200 "), "the same connection");
    let names: Vec<_> =
        world.shard.apps.tenants().into_iter().map(|(id, _)| id.to_owned()).collect();
    assert_eq!(names, ["1001", "2"], "its books stay");
    serve(&mut world, &mut directory, vec![App::development(), app("2")]);
    let back = world.connect();
    world.handshake(back, "/app/key-2?protocol=7");
    assert!(world.subscribe(back, "cache-a")[1].contains("cache_miss"));
}

#[test]
fn an_app_that_is_switched_off_says_so_and_keeps_what_it_has() {
    let mut world = World::new();
    let mut directory = Directory::new(&[App::development()]);
    let (client, _) = world.client();
    world.subscribe(client, "cache-a");
    assert!(world.publish(&event(&["cache-a"], "1")).starts_with("HTTP/1.1 200 "));
    world.frames(client);
    let off = App { enabled: false, ..App::development() };
    serve(&mut world, &mut directory, vec![off]);
    assert!(world.frames(client)[1].starts_with("close 4003"));
    assert!(world.publish(&event(&["cache-a"], "2")).starts_with("HTTP/1.1 403 "));
    serve(&mut world, &mut directory, vec![App::development()]);
    let (client, _) = world.client();
    assert!(world.subscribe(client, "cache-a")[1].contains("\"data\":\"1\""));
}
