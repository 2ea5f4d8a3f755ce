//! Signatures, by the cryptography that TLS uses here already. Nothing but EdDSA and ES256 exists.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey};
use ring::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes it the process's own. The second time changes nothing.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

struct Ring {
    algorithm: Algorithm,
    key: UnparsedPublicKey<Vec<u8>>,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let bytes = key.try_get_as_bytes()?.to_vec();
    let key = match algorithm {
        Algorithm::EdDSA => UnparsedPublicKey::new(&ED25519, bytes),
        Algorithm::ES256 => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, bytes),
        _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
    };
    Ok(Box::new(Ring { algorithm: *algorithm, key }))
}

impl Verifier<Vec<u8>> for Ring {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        self.key.verify(message, signature).map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Ring {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
