//! Who the server is: its certificate, and keys that a restart finds again.

use crate::transport::Keys;
use anyhow::{Context, Result, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A certificate and its key, in PEM.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The chain, the server's own certificate first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A certificate with its key.
#[derive(Debug)]
pub struct Identity {
    /// The chain, the server's own certificate first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its private key.
    pub key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl Identity {
    /// Reads the files.
    ///
    /// # Errors
    /// Name the key and the file.
    pub fn load(files: &Files) -> Result<Self> {
        let cert = files.cert.display();
        let chain = CertificateDer::pem_file_iter(&files.cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(|| format!("[tls] cert = {cert}: no PEM certificates can be read"))?;
        ensure!(!chain.is_empty(), "[tls] cert = {cert}: holds no certificate");
        let key = PrivateKeyDer::from_pem_file(&files.key).with_context(|| {
            format!("[tls] key = {}: no PEM private key can be read", files.key.display())
        })?;
        Ok(Self { chain, key })
    }

    /// The development certificate of a folder: made once, for `localhost` and this machine's
    /// loopback addresses.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn development(folder: &Path) -> Result<Self> {
        let (cert, key) = (folder.join(CERTIFICATE), folder.join("development.key.der"));
        if let (Some(cert), Some(key)) = (read(&cert)?, read(&key)?) {
            let key = PrivatePkcs8KeyDer::from(key).into();
            return Ok(Self { chain: vec![cert.into()], key });
        }
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).context("no certificate was made")?;
        let secret = made.signing_key.serialize_der();
        write(&key, &secret)?;
        write(&cert, made.cert.der())?;
        let key = PrivatePkcs8KeyDer::from(secret).into();
        Ok(Self { chain: vec![made.cert.der().clone()], key })
    }

    /// The SHA-256 of the certificate, by which a client may know it.
    pub fn fingerprint(&self) -> String {
        self.chain.first().map(|own| hex::encode(Sha256::digest(own))).unwrap_or_default()
    }
}

/// The development certificate's file, which clients on this machine may trust.
pub const CERTIFICATE: &str = "development.cert.der";

/// The keys of a folder: drawn once.
///
/// # Errors
/// When the folder cannot be read or written.
pub fn keys(folder: &Path) -> Result<Keys> {
    let path = folder.join("endpoint.key");
    let bytes = match read(&path)?.filter(|bytes| bytes.len() == 40) {
        Some(bytes) => bytes,
        None => {
            let mut bytes = vec![0; 40];
            getrandom::fill(&mut bytes).context("the kernel has no random numbers")?;
            write(&path, &bytes)?;
            bytes
        }
    };
    let (reset, ids) = bytes.split_first_chunk().expect("40 bytes");
    let ids = ids.first_chunk().expect("8 bytes are left");
    Ok(Keys { reset: *reset, ids: u64::from_be_bytes(*ids) })
}

fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{}: cannot be read", path.display())),
    }
}

/// Writes a file that only this user may read, whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let told = || format!("{}: cannot be written (state_dir)", path.display());
    fs::create_dir_all(folder).with_context(told)?;
    let draft = path.with_extension(format!("{}.draft", std::process::id()));
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
    options.open(&draft).and_then(|mut file| file.write_all(bytes)).with_context(told)?;
    fs::rename(&draft, path).with_context(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_finds_the_same_keys_and_certificate() {
        let folder = std::env::temp_dir().join(format!("sluicegate-{}", std::process::id()));
        let first = Identity::development(&folder).unwrap();
        let second = Identity::development(&folder).unwrap();
        assert_eq!(first.chain, second.chain);
        assert_eq!(first.fingerprint().len(), 64);
        assert_eq!(keys(&folder).unwrap(), keys(&folder).unwrap());
        fs::remove_dir_all(folder).unwrap();
    }
}
