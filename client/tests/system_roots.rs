//! The roots of the operating system. The environment of a process says where they are, so that
//! each case is a process of its own: this program, run again.
#![cfg(all(unix, not(target_vendor = "apple"), not(madsim)))]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod support;

use sluicegate_client::{Client, ConnectError, Options, Trust};
use std::path::Path;
use std::process::{Command, Output};
use support::{Server, soon};

/// Where the system's roots are.
const ROOTS: &str = "SSL_CERT_FILE";

/// Which server this process connects to; none for the one that has the server.
const URL: &str = "SLUICEGATE_TEST_URL";

const TEST: &str = "a_server_is_trusted_when_the_system_trusts_it";

/// Runs this test again as a client, on a system with these roots.
async fn client(url: String, roots: String) -> Output {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("roots.pem");
    std::fs::write(&path, roots).unwrap();
    let run = move || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture"]).env_remove("SSL_CERT_DIR");
        command.env(ROOTS, path).env(URL, url).output().unwrap()
    };
    soon(tokio::task::spawn_blocking(run)).await.unwrap()
}

#[tokio::test]
async fn a_server_is_trusted_when_the_system_trusts_it() {
    if let Ok(url) = std::env::var(URL) {
        match soon(Client::connect(&url, Options::new(Trust::System))).await {
            Ok(_) => println!("it was let in"),
            Err(ConnectError::Unreachable(why)) => println!("unreachable: {why}"),
            Err(ConnectError::Options(why)) => println!("options: {why}"),
            Err(other) => panic!("{other}"),
        }
        return;
    }
    let (server, other) = (Server::start(), Server::start());
    let trusted = client(server.url(), server.pem.clone());
    let (output, _peer) = tokio::join!(trusted, server.greet());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.lines().any(|line| line == "it was let in"), "{said}");

    // It shows the certificate of another one.
    let output = tokio::select! {
        output = client(server.url(), other.pem.clone()) => output,
        _ = server.refused() => unreachable!("it waits for ever"),
    };
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("unreachable: ") && said.contains("invalid peer certificate"), "{said}");

    // There are no roots.
    let output = client(server.url(), String::new()).await;
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("options: ") && said.contains("CA certificates"), "{said}");
}
