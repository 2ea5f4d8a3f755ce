//! Who may do what: tenants, tokens and the topics that they open.

use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// What a connection may do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Which tenant it belongs to, in the order of the settings.
    pub(crate) tenant: usize,
    publish: Vec<Pattern>,
    subscribe: Vec<Pattern>,
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
    /// What opens it. Without any, everybody who reaches the server may do everything there.
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

/// What a client that names a tenant and shows a token may do; none when that is nothing. Takes
/// the same time whichever token it is. Cost: O(tenants + tokens of the tenant).
pub(crate) fn check(tenants: &[Tenant], name: &str, token: &str) -> Option<Arc<Access>> {
    let index = tenants.iter().position(|tenant| tenant.name == name)?;
    let tenant = &tenants[index];
    if tenant.token.is_empty() {
        let all = vec![Pattern::all()];
        return Some(Arc::new(Access { tenant: index, publish: all.clone(), subscribe: all }));
    }
    let shown: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    let mut found = None;
    for token in &tenant.token {
        if bool::from(token.sha256.ct_eq(&shown)) {
            found = Some(token);
        }
    }
    found.map(|Token { publish, subscribe, .. }| {
        let (publish, subscribe) = (publish.clone(), subscribe.clone());
        Arc::new(Access { tenant: index, publish, subscribe })
    })
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
        let access = check(&tenants, "shop", "secret").unwrap();
        assert_eq!(access.tenant, 1);
        assert!(access.may_subscribe("news.eu") && !access.may_subscribe("other"));
        assert!(!access.may_publish("news.eu"));
        assert_eq!(check(&tenants, "shop", "Secret"), None);
        assert_eq!(check(&tenants, "shop", ""), None);
        assert_eq!(check(&tenants, "nobody", "secret"), None);
        assert!(check(&tenants, "default", "").unwrap().may_publish("x"));
    }
}
