//! Who may do what: tenants, tokens and the topics that they open.

use crate::jwt::{self, Jwt, Pass};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;

/// What a connection may do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Which tenant it belongs to, in the order of the settings.
    pub(crate) tenant: usize,
    publish: Vec<Pattern>,
    subscribe: Vec<Pattern>,
    /// From now on; none for as long as the connection lives.
    pub(crate) lasts: Option<Duration>,
}

impl Access {
    pub(crate) fn may_publish(&self, topic: &str) -> bool {
        self.publish.iter().any(|pattern| pattern.covers(topic))
    }

    pub(crate) fn may_subscribe(&self, topic: &str) -> bool {
        self.subscribe.iter().any(|pattern| pattern.covers(topic))
    }
}

/// Topics by name: one, or with `*` at its end all that begin so.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// All topics.
    pub fn all() -> Self {
        Self("*".to_owned())
    }

    fn covers(&self, topic: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(start) => topic.starts_with(start),
            None => topic == self.0,
        }
    }
}

/// A secret that opens a tenant.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// The secret's SHA-256 in hexadecimal, so that the file does not hold the secret.
    #[serde(deserialize_with = "hash")]
    pub sha256: [u8; 32],
    /// Topics that it may publish to.
    #[serde(default)]
    pub publish: Vec<Pattern>,
    /// Topics that it may subscribe to.
    #[serde(default)]
    pub subscribe: Vec<Pattern>,
}

fn hash<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
    let text = String::deserialize(deserializer)?;
    let mut hash = [0; 32];
    hex::decode_to_slice(&text, &mut hash).map_err(|_| {
        serde::de::Error::custom(
            "a SHA-256 is 64 hexadecimal digits: printf %s TOKEN | sha256sum prints it",
        )
    })?;
    Ok(hash)
}

/// One who shares the server fairly with the others.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// How clients name it.
    pub name: String,
    /// Its share against the others': 1 to 1000.
    #[serde(default = "one")]
    pub weight: u32,
    /// What opens it, besides signed tokens. Without either, everybody who reaches the server may
    /// do everything there.
    #[serde(default)]
    pub token: Vec<Token>,
}

const fn one() -> u32 {
    1
}

impl Tenant {
    /// The tenant of a server that nobody has configured: open.
    pub fn open(name: &str) -> Self {
        Self { name: name.to_owned(), weight: 1, token: Vec::new() }
    }
}

/// Why a client is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// There is no such tenant, or the token is not one of its own.
    Unknown,
    /// It is no token of the tenant, and as a signed one it is not good.
    Jwt(jwt::Fault),
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("the token does not open this tenant"),
            Self::Jwt(fault) => write!(f, "{fault}"),
        }
    }
}

/// What a client that names a tenant and shows a token may do at a point in time, since 1970. Takes
/// the same time whichever token of the tenant it is. Where signed tokens are looked at, nobody
/// gets in without a token.
/// Cost: O(tenants + tokens of the tenant), and one signature if none of them is shown.
pub(crate) fn check(
    tenants: &[Tenant],
    jwt: Option<&Jwt>,
    (name, token): (&str, &str),
    now: Duration,
) -> Result<Arc<Access>, Denied> {
    let index = tenants.iter().position(|tenant| tenant.name == name).ok_or(Denied::Unknown)?;
    let tenant = &tenants[index];
    if tenant.token.is_empty() && jwt.is_none() {
        let (publish, subscribe) = (vec![Pattern::all()], vec![Pattern::all()]);
        return Ok(Arc::new(Access { tenant: index, publish, subscribe, lasts: None }));
    }
    let shown: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    let mut found = None;
    for token in &tenant.token {
        if bool::from(token.sha256.ct_eq(&shown)) {
            found = Some(token);
        }
    }
    if let Some(Token { publish, subscribe, .. }) = found {
        let (publish, subscribe) = (publish.clone(), subscribe.clone());
        return Ok(Arc::new(Access { tenant: index, publish, subscribe, lasts: None }));
    }
    let pass = jwt.ok_or(Denied::Unknown)?.check(token, now).map_err(Denied::Jwt)?;
    let Pass { tenant, publish, subscribe, lasts } = pass;
    if tenant != name {
        return Err(Denied::Unknown);
    }
    Ok(Arc::new(Access { tenant: index, publish, subscribe, lasts: Some(lasts) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern(text.to_owned())
    }

    #[test]
    fn a_pattern_covers_a_name_or_all_that_begin_so() {
        for (text, topic, covers) in [
            ("orders", "orders", true),
            ("orders", "orders.eu", false),
            ("orders.*", "orders.eu", true),
            ("orders.*", "orders", false),
            ("*", "anything", true),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(pattern(text).covers(topic), covers, "{text} {topic}");
        }
    }

    #[test]
    fn a_token_opens_its_tenant_as_far_as_it_says() {
        let token = Token {
            sha256: Sha256::digest(b"secret").into(),
            publish: vec![],
            subscribe: vec![pattern("news.*")],
        };
        let shop = Tenant { token: vec![token], ..Tenant::open("shop") };
        let tenants = [Tenant::open("default"), shop];
        let check = |name, token| check(&tenants, None, (name, token), Duration::ZERO);
        let access = check("shop", "secret").unwrap();
        assert_eq!((access.tenant, access.lasts), (1, None));
        assert!(access.may_subscribe("news.eu") && !access.may_subscribe("other"));
        assert!(!access.may_publish("news.eu"));
        assert_eq!(check("shop", "Secret"), Err(Denied::Unknown));
        assert_eq!(check("shop", ""), Err(Denied::Unknown));
        assert_eq!(check("nobody", "secret"), Err(Denied::Unknown));
        assert!(check("default", "").unwrap().may_publish("x"));
    }
}
