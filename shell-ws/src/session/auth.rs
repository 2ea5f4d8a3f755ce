//! The signature of a request to the HTTP API.

use crate::apps::App;
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use sha2::Sha256;
use sluicegate_wire::{http, rest};
use std::borrow::Cow;
use std::fmt;
use subtle::ConstantTimeEq;

/// Seconds that a request's timestamp may differ from the server's time, exclusively.
const WINDOW: u64 = 600;

/// What is signed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signed<'a> {
    /// The method, as sent.
    pub(super) method: &'a str,
    /// The path, as sent.
    pub(super) path: &'a str,
    /// The same without the server's prefix: some libraries sign this.
    pub(super) stripped: &'a str,
    /// The query, as sent.
    pub(super) query: &'a str,
    /// The body.
    pub(super) body: &'a [u8],
}

/// Why a request is not authentic. All of them are answered with status 401.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unauthentic {
    /// `body_md5` is not the digest of the body.
    BodyDigest,
    /// Signed too long ago, or too far ahead.
    Expired {
        /// What was sent.
        given: u64,
        /// The server's time.
        now: u64,
    },
    /// `auth_key` is not this app's key.
    Key,
    /// This parameter is missing.
    Missing(&'static str),
    /// The signature is of another text, or by another secret.
    Signature,
    /// `auth_timestamp` is no number of seconds.
    Timestamp,
    /// `auth_version` is not 1.0.
    Version,
}

impl fmt::Display for Unauthentic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BodyDigest => f.write_str("body_md5: send the MD5 of the body as sent, in hex"),
            Self::Expired { given, now } => write!(
                f,
                "auth_timestamp: {given} is not within {WINDOW} s of the server's time, which is \
                 {now}; set your clock"
            ),
            Self::Key => f.write_str("auth_key: not the key of this app"),
            Self::Missing(name) => write!(f, "{name}: missing in the query, send it"),
            Self::Signature => f.write_str(
                "auth_signature: does not match; sign method, path and sorted query with the \
                 app's secret (HMAC-SHA256, hex)",
            ),
            Self::Timestamp => f.write_str("auth_timestamp: send seconds since 1970"),
            Self::Version => f.write_str("auth_version: send 1.0"),
        }
    }
}

/// Checks who sent a request. Digests and signatures are compared in constant time.
/// Cost: O(bytes of body and query).
pub(super) fn check(app: &App, request: Signed<'_>, now: u64) -> Result<(), Unauthentic> {
    let get = |name: &'static str| find(request.query, name);
    let require = |name| get(name).ok_or(Unauthentic::Missing(name));
    if require("auth_key")? != app.key.as_str() {
        return Err(Unauthentic::Key);
    }
    if require("auth_version")? != "1.0" {
        return Err(Unauthentic::Version);
    }
    let given: u64 = require("auth_timestamp")?.parse().map_err(|_| Unauthentic::Timestamp)?;
    let signature = require("auth_signature")?;
    let digest = get("body_md5");
    if !request.body.is_empty() || digest.is_some() {
        let digest = digest.ok_or(Unauthentic::Missing("body_md5"))?;
        let due = Md5::digest(request.body);
        if !bool::from(decode::<16>(&digest).ct_eq(due.as_slice())) {
            return Err(Unauthentic::BodyDigest);
        }
    }
    let is_other = request.stripped != request.path;
    if !(is_signed(app, request, request.path, &signature)
        || is_other && is_signed(app, request, request.stripped, &signature))
    {
        return Err(Unauthentic::Signature);
    }
    if given.abs_diff(now) >= WINDOW {
        return Err(Unauthentic::Expired { given, now });
    }
    Ok(())
}

/// Whether the signature covers the request with this path, its lists apart or joined.
fn is_signed(app: &App, request: Signed<'_>, path: &str, signature: &str) -> bool {
    let Signed { method, query, .. } = request;
    verify(app, &rest::string_to_sign(method, path, query), signature).is_ok()
        || rest::string_to_sign_joined(method, path, query)
            .is_some_and(|text| verify(app, &text, signature).is_ok())
}

/// Why a client may not subscribe to a private channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unauthorized {
    /// There is no token.
    Missing,
    /// The token names another app's key.
    Key,
    /// The signature is of another text, or by another secret.
    Signature,
    /// The channel is for one user, who has not signed in here.
    User,
}

impl Unauthorized {
    /// The same for a client that signs in.
    pub(super) fn for_sign_in(self) -> String {
        match self {
            Self::Signature => "auth: does not match; sign `socket_id::user::user_data` with the \
                                app's secret (HMAC-SHA256, hex)"
                .to_owned(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Unauthorized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "auth: missing, send `key:signature` from your server",
            Self::Key => "auth: not the key of this app",
            Self::Signature => {
                "auth: does not match; sign `socket_id:channel`, and `:channel_data` if you send \
                 some, with the app's secret (HMAC-SHA256, hex)"
            }
            Self::User => "this channel is for the user it names: sign in as that user first",
        })
    }
}

/// Checks the token of a client, `key:signature`, against the text that it must cover. Compared in
/// constant time. Cost: O(bytes of the text).
pub(super) fn check_token(app: &App, token: &str, text: &str) -> Result<(), Unauthorized> {
    if token.is_empty() {
        return Err(Unauthorized::Missing);
    }
    let (key, signature) = token.split_once(':').ok_or(Unauthorized::Signature)?;
    if key != app.key {
        return Err(Unauthorized::Key);
    }
    verify(app, text, signature).map_err(|()| Unauthorized::Signature)
}

fn verify(app: &App, text: &str, signature: &str) -> Result<(), ()> {
    let mut mac = Hmac::<Sha256>::new_from_slice(app.secret.reveal().as_bytes())
        .expect("a key of any length is taken");
    mac.update(text.as_bytes());
    mac.verify_slice(&decode::<32>(signature)).map_err(|_| ())
}

fn find<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    http::pairs(query).find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Hex digits of exactly `N` bytes; zeros for anything else, which no digest is.
fn decode<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    match hex::decode_to_slice(text, &mut bytes) {
        Ok(()) => bytes,
        Err(_) => [0; N],
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::apps::Secret;

    /// The query of a signed request, for tests.
    pub(in crate::session) fn sign(app: &App, request: Signed<'_>, timestamp: u64) -> String {
        let mut query = format!("auth_key={}&auth_timestamp={timestamp}&auth_version=1.0", app.key);
        if !request.query.is_empty() {
            query += &format!("&{}", request.query);
        }
        if !request.body.is_empty() {
            query += &format!("&body_md5={}", hex::encode(Md5::digest(request.body)));
        }
        let text = rest::string_to_sign(request.method, request.path, &query);
        let mut mac = Hmac::<Sha256>::new_from_slice(app.secret.reveal().as_bytes()).unwrap();
        mac.update(text.as_bytes());
        query + &format!("&auth_signature={}", hex::encode(mac.finalize().into_bytes()))
    }

    const NOW: u64 = 1_353_088_179;

    fn app() -> App {
        App {
            id: "3".to_owned(),
            key: "278d425bdf160c739803".to_owned(),
            secret: Secret::new("7ad3773142a6692b25b8".to_owned()),
            name: String::new(),
            ..App::development()
        }
    }

    fn post<'a>(query: &'a str, body: &'a [u8]) -> Signed<'a> {
        Signed { method: "POST", path: "/apps/3/events", stripped: "/apps/3/events", query, body }
    }

    const BODY: &[u8] = br#"{"name":"foo","channels":["project-3"],"data":"{\"some\":\"data\"}"}"#;
    const QUERY: &str = "auth_key=278d425bdf160c739803&auth_timestamp=1353088179&\
        auth_version=1.0&body_md5=ec365a775a4cd0599faeb73354201b6f&auth_signature=\
        da454824c97ba181a32ccc17a72625ba02771f50b50e1e7430e47a1f3f457e6c";

    #[test]
    fn the_published_example_is_authentic() {
        assert_eq!(check(&app(), post(QUERY, BODY), NOW), Ok(()));
        let large = QUERY.replace("auth_", "AUTH_").replace("body_md5", "Body_MD5");
        assert_eq!(
            check(&app(), post(&large, BODY), NOW),
            Ok(()),
            "names are signed in lower case"
        );
    }

    /// A client's token over a text, for tests.
    pub(in crate::session) fn token(app: &App, text: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(app.secret.reveal().as_bytes()).unwrap();
        mac.update(text.as_bytes());
        format!("{}:{}", app.key, hex::encode(mac.finalize().into_bytes()))
    }

    #[test]
    fn the_published_tokens_are_authentic_and_no_other_is() {
        let app = app();
        let signature = "58df8b0c36d6982b82c3ecf6b4662e34fe8c25bba48f5369f135bf843651c3a4";
        let text = "1234.1234:private-foobar";
        let good = format!("{}:{signature}", app.key);
        assert_eq!(check_token(&app, &good, text), Ok(()));
        let data =
            r#"1234.1234:presence-foobar:{"user_id":10,"user_info":{"name":"Mr. Channels"}}"#;
        let with_data = "31935e7d86dba64c2a90aed31fdc61869f9b22ba9d8863bba239c03ca481bc80";
        assert_eq!(check_token(&app, &format!("{}:{with_data}", app.key), data), Ok(()));
        for (token, fault) in [
            (String::new(), Unauthorized::Missing),
            (signature.to_owned(), Unauthorized::Signature),
            (format!("other:{signature}"), Unauthorized::Key),
            (good.replace(":58", ":59"), Unauthorized::Signature),
            (format!("{}:", app.key), Unauthorized::Signature),
            (format!("{}:{with_data}", app.key), Unauthorized::Signature),
        ] {
            assert_eq!(check_token(&app, &token, text), Err(fault), "{token}");
            assert!(fault.to_string().starts_with("auth: "));
        }
        assert!(check_token(&app, &good, "1234.1235:private-foobar").is_err());
    }

    #[test]
    fn the_window_is_just_under_ten_minutes_both_ways() {
        for (now, authentic) in
            [(NOW + 599, true), (NOW + 600, false), (NOW - 599, true), (NOW - 600, false)]
        {
            let result = check(&app(), post(QUERY, BODY), now);
            assert_eq!(result.is_ok(), authentic, "{now}: {result:?}");
        }
    }

    #[test]
    fn whatever_is_changed_is_noticed() {
        let with = |from: &str, to: &str| QUERY.replace(from, to);
        for (query, body, fault) in [
            (with("auth_key=2", "auth_key=3"), BODY, Unauthentic::Key),
            (with("version=1.0", "version=1.1"), BODY, Unauthentic::Version),
            (with("timestamp=1353088179", "timestamp=x"), BODY, Unauthentic::Timestamp),
            (with("timestamp=1353088179", "timestamp=1353088180"), BODY, Unauthentic::Signature),
            (QUERY.to_owned(), &BODY[1..], Unauthentic::BodyDigest),
            (QUERY.to_owned(), b"".as_slice(), Unauthentic::BodyDigest),
            (with("signature=da", "signature=db"), BODY, Unauthentic::Signature),
            (with("signature=da", "signature="), BODY, Unauthentic::Signature),
            (with("signature=da", "signature=zz"), BODY, Unauthentic::Signature),
            (QUERY.to_owned() + "&x=1", BODY, Unauthentic::Signature),
            (with("&body_md5", "&body"), BODY, Unauthentic::Missing("body_md5")),
            (with("&auth_signature", "&signature"), BODY, Unauthentic::Missing("auth_signature")),
            (String::new(), BODY, Unauthentic::Missing("auth_key")),
        ] {
            assert_eq!(check(&app(), post(&query, body), NOW), Err(fault), "{query}");
            assert!(fault.to_string().contains(": "), "{fault}");
        }
        let path = "/apps/4/events";
        let other = Signed { path, stripped: path, ..post(QUERY, BODY) };
        assert_eq!(check(&app(), other, NOW), Err(Unauthentic::Signature));
        let expired = Unauthentic::Expired { given: NOW, now: NOW + 600 };
        assert_eq!(check(&app(), post(QUERY, BODY), NOW + 600), Err(expired));
    }

    #[test]
    fn a_request_without_body_needs_no_digest() {
        let path = "/apps/3/channels";
        let get = |query| Signed { method: "GET", path, stripped: path, query, body: b"" };
        let query = sign(&app(), get(""), NOW);
        assert!(!query.contains("body_md5"));
        assert_eq!(check(&app(), get(&query), NOW), Ok(()));
    }
}
