//! The floor: a publisher, a relay that copies, subscribers; quinn with the broker's settings and
//! nothing else.

use super::outcome::Outcome;
use super::tally::{STAMP, Tally, stamp};
use super::{Mode, Plan};
use anyhow::{Context, Result};
use bytes::Bytes;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, TokioRuntime, VarInt};
use rustls::pki_types::CertificateDer;
use sluicegate_core::Limits;
use sluicegate_host::clock::Clock;
use sluicegate_quic::identity::Identity;
use sluicegate_quic::settings::Settings;
use sluicegate_quic::transport::{self, Keys};
use sluicegate_wire::quic::{ALPN, Assembler, Frame, Mode as Ack, decode, put_publish};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

/// Chunks that wait for one subscriber of the relay: about what the broker's transport holds.
const WAITING: usize = 32;

pub(super) fn run(plan: &Plan) -> Result<Outcome> {
    let clock = Clock::start();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = made.signing_key.serialize_der();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key).into();
    let identity = Identity { chain: vec![made.cert.der().clone()], key };
    let trust = identity.chain[0].clone();
    let (tell, told) = oneshot::channel();
    let (fanout, stop) = (plan.fanout, oneshot::channel::<()>());
    let (stop, stops) = stop;
    let relay = thread::Builder::new().name("relay".to_owned());
    let relay = relay.spawn(move || relay_thread(identity, fanout, (tell, stops)))?;
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let address = told.await.context("the relay did not start")?;
        drive(plan, clock, address, trust).await
    });
    drop(stop);
    relay.join().map_err(|_| anyhow::anyhow!("the relay panicked"))??;
    outcome
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot make a runtime")
}

fn settings() -> (Settings, Limits) {
    (Settings::default(), Limits::default())
}

fn relay_thread(
    identity: Identity,
    fanout: usize,
    (tell, stops): (oneshot::Sender<SocketAddr>, oneshot::Receiver<()>),
) -> Result<()> {
    runtime()?.block_on(async {
        let (settings, limits) = settings();
        let quic = transport::transport(&settings, &limits, true);
        let server = transport::server(identity.chain, identity.key, quic)?;
        let keys = Keys { reset: [1; 32], ids: 1 };
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let config = transport::endpoint(&keys);
        let endpoint = Endpoint::new(config, Some(server), socket, Arc::new(TokioRuntime))?;
        // Who waits for it has gone when this fails.
        let _ = tell.send(endpoint.local_addr()?);
        let mut subscribers = Vec::new();
        for _ in 0..fanout {
            let link = endpoint.accept().await.context("closed")?.await?;
            let mut stream = link.open_uni().await?;
            let (send, mut chunks) = mpsc::channel::<Bytes>(WAITING);
            // The stream is there for the peer when something is on it.
            stream.write_all(&Frame::Ping { token: 0 }.bytes()).await?;
            tokio::spawn(async move {
                while let Some(chunk) = chunks.recv().await {
                    stream.write_chunk(chunk).await?;
                }
                finish(stream, &link).await
            });
            subscribers.push(send);
        }
        let publisher = endpoint.accept().await.context("closed")?.await?;
        let mut stream = publisher.accept_uni().await?;
        while let Some(chunk) = stream.read_chunk(64 << 10, true).await? {
            for subscriber in &subscribers {
                // A subscriber that is gone is noticed at the other end.
                let _ = subscriber.send(chunk.bytes.clone()).await;
            }
        }
        drop(subscribers);
        let _ = stops.await;
        Ok(())
    })
}

async fn finish(mut stream: SendStream, link: &Connection) -> Result<()> {
    stream.finish()?;
    let _ = stream.stopped().await;
    link.closed().await;
    Ok(())
}

/// A client's side of QUIC that knows one certificate.
fn client(trust: CertificateDer<'static>) -> Result<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trust)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls)?;
    let mut config = ClientConfig::new(Arc::new(tls));
    let (settings, limits) = settings();
    let mut quic = transport::transport(&settings, &limits, true);
    quic.max_concurrent_uni_streams(VarInt::from_u32(64));
    config.transport_config(Arc::new(quic));
    Ok(config)
}

async fn drive(
    plan: &Plan,
    clock: Clock,
    address: SocketAddr,
    trust: CertificateDer<'static>,
) -> Result<Outcome> {
    let config = client(trust)?;
    let dial = || {
        let mut endpoint = Endpoint::new(
            transport::endpoint(&Keys { reset: [2; 32], ids: 2 }),
            None,
            UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?,
            Arc::new(TokioRuntime),
        )?;
        endpoint.set_default_client_config(config.clone());
        Ok::<_, anyhow::Error>(endpoint)
    };
    let mut readers = Vec::new();
    for _ in 0..plan.fanout {
        let link = dial()?.connect(address, "localhost")?.await?;
        let tally = Tally::new(clock, plan.warmup);
        let stream = link.accept_uni().await?;
        let total = plan.warmup + plan.total;
        readers.push(tokio::spawn(read(stream, tally, total, link)));
    }
    let link = dial()?.connect(address, "localhost")?.await?;
    let stream = link.open_uni().await?;
    let began = publish(plan, &clock, stream).await?;
    let mut tallies = Vec::new();
    for reader in readers {
        tallies.push(reader.await??);
    }
    Ok(Outcome {
        what: "floor",
        began,
        published: plan.total,
        warmup: plan.warmup,
        shed: 0,
        tallies,
        notes: Vec::new(),
    })
}

/// Publishes all, and answers when the first counted one was.
async fn publish(plan: &Plan, clock: &Clock, mut stream: SendStream) -> Result<u64> {
    let pace = super::pace::Pace::new(plan.rate, clock);
    let mut records = vec![vec![0; plan.payload]; plan.batch];
    let (mut number, mut began, total) = (0, 0, plan.warmup + plan.total);
    while number < total {
        let count = usize::try_from(total - number).unwrap_or(plan.batch).min(plan.batch);
        pace.wait(number).await;
        for record in &mut records[..count] {
            if number == plan.warmup {
                began = clock.now().as_nanos();
            }
            stamp(record, number, clock);
            number += 1;
        }
        let mut frame = Vec::with_capacity(count * (plan.payload + STAMP) + STAMP);
        put_publish(&mut frame, 0, Ack::Unacked, &records[..count]);
        stream.write_chunk(frame.into()).await?;
        if plan.mode == Mode::Latency {
            tokio::task::yield_now().await;
        }
    }
    stream.finish()?;
    let _ = stream.stopped().await;
    Ok(began)
}

async fn read(
    mut stream: RecvStream,
    mut tally: Tally,
    total: u64,
    link: Connection,
) -> Result<Tally> {
    let mut assembler = Assembler::new(32 << 20);
    let mut number = 0;
    while number < total {
        let chunk = stream.read_chunk(64 << 10, true).await?.context("the stream ended early")?;
        let mut bytes = &chunk.bytes[..];
        while let Some(frame) = assembler.take(&mut bytes)? {
            let Some(Frame::Publish { records, .. }) = decode(&frame)? else { continue };
            for record in records {
                tally.see(record, number);
                number += 1;
            }
        }
    }
    link.close(VarInt::from_u32(0), b"done");
    Ok(tally)
}
