//! Public keys from files, and which of them a token means.

use super::Fault;
use anyhow::{Context, Result, bail, ensure};
use jsonwebtoken::{Algorithm, DecodingKey};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The most keys of one server.
const MAX_KEYS: usize = 16;

/// The longest file, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// What comes before the 32 bytes of an Ed25519 key (RFC 8410).
const ED25519: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// What comes before the 65 bytes of a point on P-256 (RFC 5480).
const P256: &[u8] = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\
    \x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";

/// Where a key is, and how tokens name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The `kid` of the tokens that it has signed; none for the only key.
    pub kid: Option<String>,
    /// A public key in PEM.
    pub file: PathBuf,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kid) = &self.kid {
            write!(f, "{kid}=")?;
        }
        write!(f, "{}", self.file.display())
    }
}

impl FromStr for Source {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (kid, file) = match text.split_once('=') {
            Some((kid, file)) => (Some(kid.trim().to_owned()), file.trim()),
            None => (None, text.trim()),
        };
        let is_named = kid.as_ref().is_none_or(|kid| !kid.is_empty());
        ensure!(is_named && !file.is_empty(), "`{text}`: write KID=FILE, or FILE for the only key");
        Ok(Self { kid, file: file.into() })
    }
}

/// Looks at the names of keys.
///
/// # Errors
/// When there are too many, or a name is missing or there twice.
pub(crate) fn check(sources: &[Source]) -> Result<()> {
    let all = sources.len();
    ensure!(all <= MAX_KEYS, "{all} keys, but at most {MAX_KEYS} are looked at");
    for (at, Source { kid, file }) in sources.iter().enumerate() {
        let file = file.display();
        let Some(kid) = kid else {
            ensure!(all == 1, "{file}: has no name beside others; write KID={file}");
            continue;
        };
        let is_new = !sources[..at].iter().any(|other| other.kid.as_ref() == Some(kid));
        ensure!(is_new, "{kid}={file}: the name `{kid}` is there twice");
    }
    Ok(())
}

/// A key that may have signed a token.
#[derive(Debug)]
pub(super) struct Key {
    algorithm: Algorithm,
    decoding: DecodingKey,
}

impl Key {
    /// The only one with which it signs.
    pub(super) const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(super) const fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }

    fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).context("cannot be read")?;
        let mut pem = Vec::new();
        file.take(MAX_FILE + 1).read_to_end(&mut pem).context("cannot be read")?;
        ensure!(pem.len() as u64 <= MAX_FILE, "is longer than {MAX_FILE} bytes: no key is");
        let found: Result<Vec<_>, _> = SubjectPublicKeyInfoDer::pem_slice_iter(&pem).collect();
        let found = found.ok().context("is no PEM")?;
        let [one] = &found[..] else {
            bail!(
                "has {} public keys in PEM, but must have one: openssl pkey -in PRIVATE -pubout \
                 prints it",
                found.len()
            );
        };
        let der: &[u8] = one.as_ref();
        if let Some(key) = der.strip_prefix(ED25519).filter(|key| key.len() == 32) {
            return Ok(Self {
                algorithm: Algorithm::EdDSA,
                decoding: DecodingKey::from_ed_der(key),
            });
        }
        let point = |key: &&[u8]| key.len() == 65 && key[0] == 4;
        if let Some(key) = der.strip_prefix(P256).filter(point) {
            return Ok(Self {
                algorithm: Algorithm::ES256,
                decoding: DecodingKey::from_ec_der(key),
            });
        }
        bail!("is neither an Ed25519 nor a P-256 key: openssl genpkey -algorithm ed25519 makes one")
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Keys(Vec<(Option<String>, Key)>);

impl Keys {
    /// Reads the files, at most [`MAX_KEYS`].
    pub(super) fn read(sources: &[Source]) -> Result<Self> {
        check(sources).context("`jwt_keys`")?;
        let read = sources.iter().map(|source| {
            let key = Key::read(&source.file);
            let key = key.with_context(|| format!("`jwt_keys`: {}", source.file.display()))?;
            Ok((source.kid.clone(), key))
        });
        Ok(Self(read.collect::<Result<_>>()?))
    }

    /// The key that a token means.
    pub(super) fn find(&self, kid: Option<&str>) -> Result<&Key, Fault> {
        match (kid, &self.0[..]) {
            (None, [(_, only)]) => Ok(only),
            (None, _) => Err(Fault::NoKid),
            (Some(_), all) => {
                let found = all.iter().find(|(name, _)| name.as_deref() == kid);
                found.map(|(_, key)| key).ok_or(Fault::Kid)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(text: &str) -> Result<Vec<Source>> {
        text.split(',').map(str::parse).collect()
    }

    #[test]
    fn a_key_has_a_name_when_there_are_several() {
        for (text, expected) in [
            ("a.pem", ""),
            ("a=a.pem, b = b.pem", ""),
            ("a=a.pem,b.pem", "b.pem: has no name beside others; write KID=b.pem"),
            ("a=a.pem,a=b.pem", "the name `a` is there twice"),
        ] {
            let told = check(&sources(text).unwrap()).err().map(|error| error.to_string());
            assert!(told.clone().unwrap_or_default().contains(expected), "{told:?}");
            assert_eq!(told.is_none(), expected.is_empty(), "{text}");
        }
        let many: Vec<_> = (0..17).map(|at| format!("k{at}=f")).collect();
        assert!(check(&sources(&many.join(",")).unwrap()).is_err());
        assert!(sources("=a.pem").is_err() && sources("a=").is_err() && sources("").is_err());
        assert_eq!(sources("a = b.pem").unwrap()[0].to_string(), "a=b.pem");
    }

    #[test]
    fn what_is_no_key_is_told_with_what_helps() {
        let folder = std::env::temp_dir().join(format!("sluicegate-keys-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("key.pem");
        let pair = |kind| rcgen::KeyPair::generate_for(kind).unwrap();
        let [ed, p256, p384] =
            [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384]
                .map(pair);
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Key::read(&path).map(|key| key.algorithm()).map_err(|error| error.to_string())
        };
        assert_eq!(read(&ed.public_key_pem()), Ok(Algorithm::EdDSA));
        assert_eq!(read(&p256.public_key_pem()), Ok(Algorithm::ES256));
        let both = ed.public_key_pem() + &p256.public_key_pem();
        for (text, expected) in [
            (both, "has 2 public keys"),
            (ed.serialize_pem(), "has 0 public keys in PEM, but must have one: openssl pkey"),
            (p384.public_key_pem(), "openssl genpkey -algorithm ed25519 makes one"),
            (" ".repeat((64 << 10) + 1), "is longer than"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
