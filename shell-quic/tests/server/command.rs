//! The program as it is called from a shell, against a server of this process.

use crate::support::until;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sluicegate_quic::config::Config;
use sluicegate_quic::identity::CERTIFICATE;
use sluicegate_quic::process::Process;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A server and its folder.
struct House {
    process: Process,
    folder: PathBuf,
}

impl House {
    fn start(name: &str) -> Self {
        let name = format!("sluicegate-command-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let mut config = Config { port: 0, admin_port: 0, ..Config::default() };
        config.state_dir.clone_from(&folder);
        config.limits.shards = 1;
        Self { process: Process::start(config).unwrap(), folder }
    }

    /// Runs the program with what is typed into it, on a system that trusts these certificates.
    fn run(&self, args: &[&str], input: &str, roots: &Path) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-quic"));
        command.args(args).args(["--connect", &format!("quic://{}", self.process.address)]);
        // The development certificate of this user is not the one of the server here.
        command.env("XDG_STATE_HOME", "/nowhere");
        command.env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", roots);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Who refuses its arguments does not read.
        let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// A file with a certificate.
    fn roots(&self, name: &str, certificate: &[u8]) -> PathBuf {
        let body = STANDARD.encode(certificate);
        let pem = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        let path = self.folder.join(name);
        fs::write(&path, pem).unwrap();
        path
    }

    fn stop(self) {
        self.process.stop().unwrap();
        fs::remove_dir_all(self.folder).unwrap();
    }
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[cfg(all(unix, not(target_vendor = "apple")))]
#[test]
fn the_program_trusts_what_the_system_trusts_when_it_is_told_to() {
    let house = House::start("trust");
    let own = house.roots("own.pem", &fs::read(house.folder.join(CERTIFICATE)).unwrap());
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let other = house.roots("other.pem", other.cert.der());
    let publish = ["pub", "orders", "--acked", "--trust", "system"];
    let output = house.run(&publish, "hello\n", &own);
    assert_eq!(String::from_utf8(output.stdout.clone()).unwrap(), "1\n", "{}", told(&output));
    let subscribe = ["sub", "orders", "--from", "earliest", "--count", "1", "--trust", "system"];
    let output = house.run(&subscribe, "", &own);
    assert_eq!(String::from_utf8(output.stdout.clone()).unwrap(), "hello\n", "{}", told(&output));

    let output = house.run(&publish, "hello\n", &other);
    let text = told(&output);
    assert!(!output.status.success() && text.contains("invalid peer certificate"), "{text}");
    // What it does without the switch, and what does not go together.
    for trust in [&[][..], &["--trust", "development"]] {
        let args = [&["pub", "orders"][..], trust].concat();
        let text = told(&house.run(&args, "", &own));
        assert!(text.contains("or pass --fingerprint, --ca or --trust system"), "{text}");
    }
    let text = told(&house.run(&["pub", "orders", "--trust", "system", "--ca", "x"], "", &own));
    assert!(text.contains("cannot be used with"), "{text}");
    house.stop();
}

#[tokio::test]
async fn a_publisher_says_that_its_server_is_gone_and_what_it_has_done_when_it_is_stopped() {
    let House { process, folder } = House::start("stopped");
    let log = folder.join("publisher.log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-quic"));
    command.args(["pub", "orders", "--json", "--fingerprint", &process.fingerprint]);
    command.args(["--connect", &format!("quic://{}", process.address)]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(b"hello\n").unwrap();
    let sequenced = || process.shards()[0].look(|broker| broker.ledger().sequenced.records);
    until("the record to come", || sequenced() == 1).await;
    process.stop().unwrap();
    let told = || fs::read_to_string(&log).unwrap().contains("trying again");
    until("the publisher to say it", told).await;
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(r#""event":"done""#) && text.contains(r#""published":1"#), "{text}");
    drop(input);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_policy_that_the_server_does_not_take_is_told_with_the_keys_that_allow_it() {
    let house = House::start("policy");
    let fingerprint = house.process.fingerprint.clone();
    let args = ["sub", "orders", "--policy", "block", "--fingerprint", &fingerprint];
    let text = told(&house.run(&args, "", Path::new("/dev/null")));
    assert!(text.contains("--policy block: the server takes it with lossless"), "{text}");
    house.stop();
}

#[test]
fn a_rate_of_nothing_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-quic"));
    let output = command.args(["bench", "--rate", "0"]).output().unwrap();
    assert!(!output.status.success() && told(&output).contains("'--rate <NUMBER>'"));
}
