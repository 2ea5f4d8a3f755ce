//! Tokens that somebody else has signed.

use crate::support::{Dial, Gate, until, within};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::KeyPair;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use serde_json::{Value, json};
use sluicegate_client::{
    Client, Code, ConnectError, Event, Options, Reason, Retry, SubscribeOptions, TopicError, Trust,
};
use sluicegate_host::clock::Clock;
use sluicegate_quic::access::Tenant;
use sluicegate_quic::config::Config;
use sluicegate_quic::identity::CERTIFICATE;
use sluicegate_quic::process::Process;
use sluicegate_quic::settings::Settings;
use sluicegate_wire::quic::Frame;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Who signs.
struct Signer {
    pair: KeyPair,
    algorithm: &'static str,
}

impl Signer {
    fn new(algorithm: &'static str) -> Self {
        let kind = match algorithm {
            "EdDSA" => &rcgen::PKCS_ED25519,
            _ => &rcgen::PKCS_ECDSA_P256_SHA256,
        };
        Self { pair: KeyPair::generate_for(kind).unwrap(), algorithm }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let der = self.pair.serialize_der();
        if self.algorithm == "EdDSA" {
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).unwrap();
            return pair.sign(message).as_ref().to_vec();
        }
        let random = ring::rand::SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random);
        pair.unwrap().sign(&random, message).unwrap().as_ref().to_vec()
    }

    /// A token by this key that says `kid` in its header.
    fn token(&self, kid: &str, claims: &Value) -> String {
        self.with(&json!({ "alg": self.algorithm, "kid": kid }), claims)
    }

    /// One with any header.
    fn with(&self, header: &Value, claims: &Value) -> String {
        let body = body(header, claims);
        let signature = self.sign(body.as_bytes());
        format!("{body}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn write(&self, path: &Path) {
        std::fs::write(path, self.pair.public_key_pem()).unwrap();
    }
}

fn body(header: &Value, claims: &Value) -> String {
    let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    format!("{header}.{claims}")
}

/// One that anybody can make who knows `secret`.
fn hmac(secret: &[u8], kid: &str, claims: &Value) -> String {
    let body = body(&json!({ "alg": "HS256", "kid": kid }), claims);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    let signature = ring::hmac::sign(&key, body.as_bytes());
    format!("{body}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Seconds since 1970, so much later.
fn from_now(seconds: i64) -> i64 {
    i64::try_from(Clock::start().unix_seconds()).unwrap() + seconds
}

/// What opens the tenant for an hour, with some claims set or, by null, left out.
fn claims(others: &Value) -> Value {
    let mut all = json!({
        "exp": from_now(3600), "tenant": "shop", "aud": "us", "iss": "them", "sub": "anybody",
        "publish": ["orders.*"], "subscribe": ["*"],
    });
    for (name, value) in others.as_object().unwrap() {
        all[name] = value.clone();
    }
    all.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    all
}

/// A process with the keys `ed` and `es`.
struct House {
    process: Process,
    gate: Gate,
    folder: PathBuf,
    ed: Signer,
    es: Signer,
}

impl House {
    fn start(name: &str, leeway: Duration) -> Self {
        let name = format!("sluicegate-jwt-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let (ed, es) = (Signer::new("EdDSA"), Signer::new("ES256"));
        ed.write(&folder.join("ed.pem"));
        es.write(&folder.join("es.pem"));
        let mut config = Config { port: 0, admin_port: 0, ..Config::default() };
        config.state_dir.clone_from(&folder);
        let file = |name: &str| format!("{name}={}", folder.join(name).display());
        let keys = ["ed.pem", "es.pem"].map(|name| file(name).replacen(".pem", "", 1));
        config.jwt.keys = keys.iter().map(|key| key.parse().unwrap()).collect();
        config.jwt.audience = vec!["us".to_owned(), "others".to_owned()];
        config.jwt.issuer = vec!["them".to_owned()];
        config.jwt.leeway = leeway;
        let tenants = ["shop", "bank"].map(Tenant::open).to_vec();
        config.settings = Settings { tenants, ..Settings::default() };
        config.limits.shards = 1;
        let process = Process::start(config).unwrap();
        let certificate = std::fs::read(folder.join(CERTIFICATE)).unwrap().into();
        let gate = Gate { address: process.address, certificate };
        Self { process, gate, folder, ed, es }
    }

    async fn client(&self, tenant: &str, token: &str) -> Result<Client, ConnectError> {
        let trust = Trust::Certificates(vec![self.gate.certificate.clone()]);
        let options =
            Options { tenant: tenant.to_owned(), token: token.to_owned(), ..Options::new(trust) };
        let url = format!("quic://{}", self.gate.address);
        within(Client::connect(&url, options)).await
    }

    /// What one is told who is not let in.
    async fn refused(&self, tenant: &str, token: &str) -> String {
        match self.client(tenant, token).await {
            Err(ConnectError::Refused { code: Some(Code::Unauthenticated), text }) => text,
            other => panic!("{other:?} with {token}"),
        }
    }

    fn metrics(&self) -> String {
        crate::shards::page(self.process.admin, "/metrics")
    }

    async fn stop(self) {
        let Self { process, folder, .. } = self;
        tokio::task::spawn_blocking(|| process.stop()).await.unwrap().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[tokio::test]
async fn a_signed_token_opens_its_tenant_as_far_as_it_says() {
    let house = House::start("rights", Duration::ZERO);
    for (signer, kid) in [(&house.ed, "ed"), (&house.es, "es")] {
        let token = signer.token(kid, &claims(&json!({ "aud": ["x", "others"], "nbf": 1.5 })));
        let client = house.client("shop", &token).await.unwrap();
        let mut sub = client.subscribe("orders.eu", SubscribeOptions::default()).await.unwrap();
        let publisher = client.publisher("orders.eu").await.unwrap();
        within(publisher.publish_acked("one")).await.unwrap();
        let event = within(sub.next()).await.unwrap().unwrap();
        assert!(matches!(&event, Event::Record { .. }), "{event:?}");
        let error = client.publisher("news").await.map(|_| ()).unwrap_err();
        let TopicError::Refused(why) = error else { panic!("{error:?}") };
        assert_eq!(why.reason, Some(Reason::NotAllowed));
        client.close().await;
    }
    // Nothing is said of what it may do, so it may do nothing.
    let token = house.ed.token("ed", &claims(&json!({ "publish": null, "subscribe": null })));
    let client = house.client("shop", &token).await.unwrap();
    assert!(client.publisher("orders.eu").await.is_err());
    assert!(client.subscribe("orders.eu", SubscribeOptions::default()).await.is_err());
    client.close().await;
    house.stop().await;
}

#[tokio::test]
async fn a_token_that_is_not_good_is_refused_with_what_is_wrong() {
    let house = House::start("faults", Duration::ZERO);
    let (ed, es) = (&house.ed, &house.es);
    let with = |others: Value| ed.token("ed", &claims(&others));
    let good = claims(&json!({}));
    let as_alg = |alg: &str| ed.with(&json!({ "alg": alg, "kid": "ed" }), &good);
    let pem = ed.pair.public_key_pem();
    let raw = ed.pair.public_key_raw();
    let unsigned = body(&json!({ "alg": "none", "kid": "ed" }), &good) + ".";
    let changed = {
        let token = with(json!({}));
        let (head, signature) = (token.split('.').next().unwrap(), token.rsplit('.').next());
        let claims = URL_SAFE_NO_PAD.encode(claims(&json!({ "publish": ["*"] })).to_string());
        format!("{head}.{claims}.{}", signature.unwrap())
    };
    let many: Vec<_> = (0..65).map(|at| at.to_string()).collect();
    let crit = json!({ "alg": "EdDSA", "kid": "ed", "crit": ["x"], "x": 1 });
    for (token, expected) in [
        (with(json!({ "exp": from_now(-1) })), "has expired"),
        (with(json!({ "exp": 0 })), "has expired"),
        (with(json!({ "nbf": from_now(3600) })), "not valid yet"),
        (hmac(pem.as_bytes(), "ed", &good), "`alg` is not what its key is for"),
        (hmac(raw, "ed", &good), "`alg` is not what its key is for"),
        (as_alg("ES256"), "`alg` is not what its key is for"),
        (as_alg("RS256"), "`alg` is not what its key is for"),
        (unsigned, "no JWT with `exp` and `tenant`, signed with EdDSA or ES256"),
        (ed.with(&crit, &good), "no JWT"),
        (ed.token("eve", &good), "`kid` is none of the server's `jwt_keys`"),
        (ed.with(&json!({ "alg": "EdDSA" }), &good), "has no `kid`"),
        (es.with(&json!({ "alg": "EdDSA", "kid": "ed" }), &good), "not signed by its key"),
        (ed.token("es", &good), "`alg` is not what its key is for"),
        (changed, "not signed by its key"),
        (with(json!({ "aud": "them" })), "`aud` has none of the server's `jwt_audience`"),
        (with(json!({ "aud": null })), "`aud` has none of the server's `jwt_audience`"),
        (with(json!({ "iss": "us" })), "`iss` is none of the server's `jwt_issuer`"),
        (with(json!({ "iss": null })), "`iss` is none of the server's `jwt_issuer`"),
        (with(json!({ "exp": null })), "no JWT with `exp`"),
        (with(json!({ "exp": "soon" })), "no JWT with `exp`"),
        (with(json!({ "tenant": null })), "no JWT with `exp` and `tenant`"),
        (with(json!({ "tenant": "bank" })), "does not open this tenant"),
        (with(json!({ "publish": many })), "more than 64 patterns"),
        ("x.y.z".to_owned(), "no JWT"),
        (String::new(), "no JWT"),
    ] {
        let text = house.refused("shop", &token).await;
        assert!(text.contains(expected), "{text} for {token}, and not {expected}");
    }
    house.stop().await;
}

#[tokio::test]
async fn clocks_may_be_a_little_off() {
    let house = House::start("leeway", Duration::from_secs(300));
    for others in [json!({ "exp": from_now(-1) }), json!({ "nbf": from_now(100) })] {
        let token = house.ed.token("ed", &claims(&others));
        house.client("shop", &token).await.unwrap().close().await;
    }
    let token = house.ed.token("ed", &claims(&json!({ "exp": from_now(-301) })));
    assert!(house.refused("shop", &token).await.contains("has expired"));
    house.stop().await;
}

#[tokio::test]
async fn a_connection_ends_with_its_token() {
    let house = House::start("end", Duration::ZERO);
    // On a machine so slow that the token is worth nothing when it is shown, the next one is.
    let pair = async {
        loop {
            let token = house.ed.token("ed", &claims(&json!({ "exp": from_now(2) })));
            let Ok(client) = house.client("shop", &token).await else { continue };
            let mut peer = house.gate.dial(Dial::default()).await;
            let tenant = "shop";
            peer.say(&Frame::Hello { oldest: 1, newest: 1, features: 0, tenant, token: &token })
                .await;
            if peer.control.next().await.is_some() {
                break (client, peer);
            }
        }
    };
    let (client, peer) = within(pair).await;
    let code = peer.closed().await;
    assert_eq!(Code::from_number(code), Some(Code::Expired));
    // The client has no other token: it gives up, and says why.
    let given_up = async {
        loop {
            match client.publisher("orders.eu").await {
                Err(TopicError::Disconnected(why)) => break why,
                Ok(_) => tokio::task::yield_now().await,
                Err(other) => panic!("{other}"),
            }
        }
    };
    let told = within(given_up).await;
    assert_eq!((told.code, told.why.retry), (Some(Code::Expired), Retry::Never));
    let shard = &house.process.shards()[0];
    until("both to be gone", || shard.look(|broker| broker.counts()) == (0, 0)).await;
    shard.look(sluicegate_core::Broker::check).unwrap();
    house.stop().await;
}

#[tokio::test]
async fn keys_that_are_read_again_are_for_those_that_come_then() {
    let house = House::start("reload", Duration::ZERO);
    let old = house.ed.token("ed", &claims(&json!({})));
    let client = house.client("shop", &old).await.unwrap();
    let publisher = client.publisher("orders.eu").await.unwrap();
    let path = house.folder.join("ed.pem");

    std::fs::write(&path, "-----BEGIN PUBLIC KEY-----\n").unwrap();
    let error = format!("{:#}", house.process.reload().unwrap_err());
    let named = format!("`jwt_keys`: {}: is no PEM", path.display());
    assert!(error.contains(&named), "{error}");
    assert!(house.metrics().contains("sluicegate_failed_reloads_total 1\n"));
    house.client("shop", &old).await.unwrap().close().await;

    let new = Signer::new("ES256");
    new.write(&path);
    house.process.reload().unwrap();
    assert!(house.refused("shop", &old).await.contains("`alg` is not what its key is for"));
    let token = new.token("ed", &claims(&json!({})));
    house.client("shop", &token).await.unwrap().close().await;
    within(publisher.publish_acked("still there")).await.unwrap();
    assert_eq!(client.stats().reconnects, 0);
    client.close().await;
    house.stop().await;
}

#[tokio::test]
async fn a_token_is_as_long_as_a_frame_allows_and_no_longer() {
    let house = House::start("length", Duration::ZERO);
    let long = "x".repeat((8 << 10) + 1);
    let mut peer = house.gate.dial(Dial::default()).await;
    let hello = Frame::Hello { oldest: 1, newest: 1, features: 0, tenant: "shop", token: &long };
    peer.say(&hello).await;
    assert_eq!(Code::from_number(peer.closed().await), Some(Code::Malformed));
    house.refused("shop", &long[1..]).await;
    house.stop().await;
}

#[test]
fn a_server_without_its_keys_does_not_start() {
    let mut config = Config { port: 0, admin_port: 0, ..Config::default() };
    config.state_dir = std::env::temp_dir().join("sluicegate-jwt-nothing");
    config.jwt.keys = vec!["/nowhere/key.pem".parse().unwrap()];
    let error = format!("{:#}", Process::start(config).unwrap_err());
    assert!(error.contains("`jwt_keys`: /nowhere/key.pem: cannot be read: "), "{error}");
}

/// The program itself, as its environment tells it; it is killed when it is not needed any more.
struct Program {
    child: Child,
    log: mpsc::Receiver<String>,
    hello: Value,
}

impl Program {
    fn start(folder: &Path, key: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-quic"));
        command.args(["--json", "serve", "--port", "0", "--set", "admin_port=0"]);
        command.env("SLUICEGATE_QUIC_STATE_DIR", folder);
        command.env("SLUICEGATE_QUIC_JWT_KEYS", format!("one={}", key.display()));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (told, log) = mpsc::sync_channel(64);
        // It ends with the program.
        std::thread::spawn(move || {
            // Of its sockets and of who is not let in it speaks too.
            let others = ["socket buffers", "was not let in"];
            let is_asked = |line: &String| !others.iter().any(|other| line.contains(other));
            lines.map_while(Result::ok).filter(is_asked).for_each(|line| {
                let _ = told.send(line);
            });
        });
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, log, hello: serde_json::from_str(&line).unwrap() }
    }

    /// Tells it to read its files again, and answers what it logs then.
    fn hang_up(&self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
        self.log.recv_timeout(Duration::from_secs(30)).expect("it says what it has done")
    }

    async fn connect(&self, token: &str) -> Result<Client, ConnectError> {
        let mut print = [0; 32];
        for (at, byte) in print.iter_mut().enumerate() {
            let digits = &self.hello["fingerprint"].as_str().unwrap()[2 * at..2 * at + 2];
            *byte = u8::from_str_radix(digits, 16).unwrap();
        }
        let options =
            Options { token: token.to_owned(), ..Options::new(Trust::Fingerprint(print)) };
        let url = format!("quic://{}", self.hello["address"].as_str().unwrap());
        within(Client::connect(&url, options)).await
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_hangup_reads_the_keys_again_and_says_so() {
    let folder = std::env::temp_dir().join(format!("sluicegate-hangup-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let key = folder.join("one.pem");
    let (old, new) = (Signer::new("EdDSA"), Signer::new("EdDSA"));
    old.write(&key);
    let program = Program::start(&folder, &key);
    let claims = claims(&json!({ "tenant": "default", "aud": null }));
    let [first, second] = [&old, &new].map(|signer| signer.token("one", &claims));
    let client = program.connect(&first).await.unwrap();
    assert!(program.connect(&second).await.is_err());
    std::fs::write(&key, old.pair.serialize_pem()).unwrap();
    let told = program.hang_up();
    assert!(told.contains("has 0 public keys") && told.contains("stays in force"), "{told}");
    assert!(!told.contains("PRIVATE KEY"), "a key by mistake is not shown: {told}");
    program.connect(&first).await.unwrap().close().await;
    new.write(&key);
    assert!(program.hang_up().contains("were read again"));
    program.connect(&second).await.unwrap().close().await;
    assert!(program.connect(&first).await.is_err());
    let publisher = client.publisher("orders.eu").await.unwrap();
    within(publisher.publish_acked("still there")).await.unwrap();
    assert_eq!(client.stats().reconnects, 0);
    client.close().await;
    drop(program);
    std::fs::remove_dir_all(folder).unwrap();
}
