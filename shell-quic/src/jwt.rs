//! Tokens that somebody else has signed: JSON Web Tokens (RFC 7519), by Ed25519 or P-256 keys.
//!
//! ```json
//! { "exp": 1798761600, "tenant": "shop", "publish": ["orders.*"], "subscribe": ["*"] }
//! ```
//!
//! The key says with which algorithm a token is signed, and never the token. `exp` and `tenant`
//! must be there, `nbf` counts when it is there, and rights are as those of a token in the
//! configuration.

mod keys;
mod verify;

use crate::access::Pattern;
use anyhow::Result;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
pub use keys::Source;
pub(crate) use keys::check;
use keys::{Key, Keys};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// The most patterns of one token, of each kind.
pub const MAX_PATTERNS: usize = 64;

/// Where the keys are, and what tokens must say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Without any, no such token opens anything.
    pub keys: Vec<Source>,
    /// One of these must be in `aud`; without any, a token that has an `aud` is refused.
    pub audience: Vec<String>,
    /// One of these must be `iss`; without any, it may be any.
    pub issuer: Vec<String>,
    /// How far the clock of the signer may be off.
    pub leeway: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        let leeway = Duration::from_secs(10);
        Self { keys: Vec::new(), audience: Vec::new(), issuer: Vec::new(), leeway }
    }
}

/// Rules with the keys in force; a copy shares them.
#[derive(Clone, Debug)]
pub struct Jwt(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rules: Rules,
    keys: RwLock<Arc<Keys>>,
}

impl PartialEq for Jwt {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Jwt {}

/// What a good token opens.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) tenant: String,
    pub(crate) publish: Vec<Pattern>,
    pub(crate) subscribe: Vec<Pattern>,
    /// Until it is worth nothing.
    pub(crate) lasts: Duration,
}

#[derive(Deserialize)]
struct Claims {
    #[serde(deserialize_with = "date")]
    exp: Duration,
    #[serde(default, deserialize_with = "some_date")]
    nbf: Option<Duration>,
    tenant: String,
    #[serde(default)]
    publish: Vec<Pattern>,
    #[serde(default)]
    subscribe: Vec<Pattern>,
}

/// A point in time: seconds since 1970, which may have a fraction.
fn date<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let number = serde_json::Number::deserialize(deserializer)?;
    let whole = number.as_u64().map(Duration::from_secs);
    let real = || number.as_f64().and_then(|real| Duration::try_from_secs_f64(real).ok());
    whole.or_else(real).ok_or_else(|| serde::de::Error::custom("no point in time"))
}

fn some_date<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    date(deserializer).map(Some)
}

impl Jwt {
    /// Reads the keys; none when the rules name none.
    ///
    /// # Errors
    /// Name the key of the configuration, the file, and what helps.
    pub fn load(rules: &Rules) -> Result<Option<Self>> {
        if rules.keys.is_empty() {
            return Ok(None);
        }
        verify::install();
        let keys = RwLock::new(Arc::new(Keys::read(&rules.keys)?));
        Ok(Some(Self(Arc::new(Inner { rules: rules.clone(), keys }))))
    }

    /// Reads the keys again. Connections stay as they are; those that come from now on need a token
    /// by the new keys.
    ///
    /// # Errors
    /// When one cannot be used: then all of before stay in force.
    pub fn reload(&self) -> Result<()> {
        let keys = Arc::new(Keys::read(&self.0.rules.keys)?);
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        Ok(())
    }

    /// What a token opens at a point in time, since 1970. Its frame has bounded it: it is not
    /// longer than [`sluicegate_wire::quic::MAX_TOKEN`]. Cost: O(length), and one signature.
    pub(crate) fn check(&self, token: &str, now: Duration) -> Result<Pass, Fault> {
        let keys = Arc::clone(&self.0.keys.read().unwrap_or_else(PoisonError::into_inner));
        let header = decode_header(token).map_err(|error| fault(error.kind()))?;
        let key = keys.find(header.kid.as_deref())?;
        let decoded = decode::<Claims>(token, key.decoding(), &self.validation(key));
        let Claims { exp, nbf, tenant, publish, subscribe } =
            decoded.map_err(|error| fault(error.kind()))?.claims;
        let leeway = self.0.rules.leeway;
        let lasts = exp.saturating_add(leeway).saturating_sub(now);
        if lasts.is_zero() {
            return Err(Fault::Expired);
        }
        if nbf.is_some_and(|nbf| nbf > now.saturating_add(leeway)) {
            return Err(Fault::NotYet);
        }
        if publish.len().max(subscribe.len()) > MAX_PATTERNS {
            return Err(Fault::Patterns);
        }
        Ok(Pass { tenant, publish, subscribe, lasts })
    }

    /// Times are not in it: they are looked at by the project's own clock.
    fn validation(&self, key: &Key) -> Validation {
        let Rules { audience, issuer, .. } = &self.0.rules;
        let mut validation = Validation::new(key.algorithm());
        validation.validate_exp = false;
        if !audience.is_empty() {
            validation.set_audience(audience);
            validation.required_spec_claims.insert("aud".to_owned());
        }
        if !issuer.is_empty() {
            validation.set_issuer(issuer);
            validation.required_spec_claims.insert("iss".to_owned());
        }
        validation
    }
}

/// Why a token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is none, or its header says an algorithm that nobody knows.
    Form,
    /// It names a key that is not there.
    Kid,
    /// It names no key, and there are several.
    NoKid,
    /// It is signed in another way than the key is for.
    Algorithm,
    Signature,
    Claims,
    Patterns,
    Expired,
    NotYet,
    Audience,
    Issuer,
}

fn fault(kind: &ErrorKind) -> Fault {
    match kind {
        ErrorKind::InvalidAlgorithm => Fault::Algorithm,
        ErrorKind::InvalidSignature => Fault::Signature,
        ErrorKind::InvalidAudience => Fault::Audience,
        ErrorKind::InvalidIssuer => Fault::Issuer,
        ErrorKind::MissingRequiredClaim(claim) if claim == "aud" => Fault::Audience,
        ErrorKind::MissingRequiredClaim(claim) if claim == "iss" => Fault::Issuer,
        ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => Fault::Claims,
        _ => Fault::Form,
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => {
                "the token is none of this tenant's, and no JWT with `exp` and `tenant`, signed \
                 with EdDSA or ES256"
            }
            Self::Kid => "the token's `kid` is none of the server's `jwt_keys`",
            Self::NoKid => "the token has no `kid`, and the server has several `jwt_keys`",
            Self::Algorithm => "the token's `alg` is not what its key is for: EdDSA or ES256",
            Self::Signature => "the token is not signed by its key in `jwt_keys`",
            Self::Claims => "a claim of the token is not as it should be: `exp`, `aud`, `iss`",
            Self::Patterns => "the token has more than 64 patterns in `publish` or `subscribe`",
            Self::Expired => "the token has expired (`exp`): get a new one",
            Self::NotYet => "the token is not valid yet (`nbf`): look at the clocks",
            Self::Audience => "the token's `aud` has none of the server's `jwt_audience`",
            Self::Issuer => "the token's `iss` is none of the server's `jwt_issuer`",
        })
    }
}
