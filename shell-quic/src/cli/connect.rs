//! How `pub`, `sub` and `bench` reach a broker.

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use sluicegate_client::{Client, Options, Trust};
use sluicegate_quic::config::Config;
use sluicegate_quic::identity::CERTIFICATE;
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// Waits until the user, or who has started the program, wants its end.
pub(super) async fn stopped() -> Result<()> {
    let heard = "cannot listen to signals";
    let mut interrupt = signal(SignalKind::interrupt()).context(heard)?;
    let mut terminate = signal(SignalKind::terminate()).context(heard)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Which broker, and as whom.
#[derive(Clone, Debug, Args)]
pub(super) struct Connect {
    /// The broker
    #[arg(long, value_name = "URL", default_value = "quic://127.0.0.1:4433")]
    connect: String,
    #[command(flatten)]
    reach: Reach,
}

/// As whom, and what is trusted.
#[derive(Clone, Debug, Args)]
pub(super) struct Reach {
    /// Whose topics
    #[arg(long, value_name = "NAME", default_value = "default")]
    tenant: String,
    /// What opens the tenant
    #[arg(long, value_name = "SECRET", env = "SLUICEGATE_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The SHA-256 of the broker's certificate, as `serve` prints it
    #[arg(long, value_name = "HEX", conflicts_with = "ca")]
    fingerprint: Option<String>,
    /// Certificates in PEM that are trusted
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Who is trusted without --fingerprint and --ca
    #[arg(long, value_enum, default_value_t = Who::Development)]
    #[arg(conflicts_with_all = ["fingerprint", "ca"])]
    trust: Who,
}

/// Who is trusted that nobody has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    /// The development certificate that `serve` has made for this user
    Development,
    /// Who has a certificate for the host of the address that the operating system trusts
    System,
}

impl Reach {
    pub(super) fn options(&self) -> Result<Options> {
        let mut options = Options::new(self.trust()?);
        options.tenant.clone_from(&self.tenant);
        options.token = self.token.clone().unwrap_or_default();
        Ok(options)
    }

    fn trust(&self) -> Result<Trust> {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject;
        if let Some(text) = &self.fingerprint {
            let mut fingerprint = [0; 32];
            hex::decode_to_slice(text, &mut fingerprint).ok().with_context(|| {
                format!("--fingerprint {text}: a SHA-256 is 64 hexadecimal digits")
            })?;
            return Ok(Trust::Fingerprint(fingerprint));
        }
        if let Some(path) = &self.ca {
            let told = || format!("--ca {}: no PEM certificates can be read", path.display());
            let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<_, _>>)
                .with_context(told)?;
            ensure!(!certificates.is_empty(), told());
            return Ok(Trust::Certificates(certificates));
        }
        if self.trust == Who::System {
            return Ok(Trust::System);
        }
        let path = Config::default().state_dir.join(CERTIFICATE);
        let own = std::fs::read(&path).with_context(|| {
            format!(
                "{}: there is no development certificate: start `sluicegate-quic serve` on this \
                 machine, or pass --fingerprint, --ca or --trust system",
                path.display()
            )
        })?;
        Ok(Trust::Certificates(vec![own.into()]))
    }
}

/// How often a client looks whether its connection still is.
const LOOK: Duration = Duration::from_millis(200);

impl Connect {
    /// Says when the connection of a client is lost, and when there is one again. Never ends.
    pub(super) async fn watch(&self, client: &Client) {
        let mut look = tokio::time::interval(LOOK);
        let (mut lost, mut made) = (0, 0);
        loop {
            look.tick().await;
            let stats = client.stats();
            if stats.disconnects > lost {
                lost = stats.disconnects;
                tracing::warn!("the connection to {} is lost: trying again", self.connect);
            }
            if stats.reconnects > made {
                made = stats.reconnects;
                tracing::info!("connected to {} again", self.connect);
            }
        }
    }

    pub(super) async fn client(&self) -> Result<Client> {
        let url = &self.connect;
        Client::connect(url, self.reach.options()?)
            .await
            .with_context(|| format!("--connect {url}"))
    }
}

pub(super) fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot make a runtime")
}
