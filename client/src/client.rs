//! The client: its handles, and the task that keeps a connection.

use crate::error::{ConnectError, Disconnected, TopicError};
use crate::link::{self, Link};
use crate::options::{Options, Reconnect, SubscribeOptions};
use crate::publishing::Publisher;
use crate::state::{Shared, Stats};
use crate::subscription::Subscription;
use crate::topic::Right;
use sluicegate_core::Rand;
use sluicegate_wire::quic::Code;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// At the end, for what was published to arrive.
const FAREWELL: Duration = Duration::from_secs(10);

/// One connection to a broker, made again when it is lost. Clones are the same client; it ends when
/// it is closed, or when the last clone, publisher and subscription is gone.
#[derive(Clone, Debug)]
pub struct Client {
    handle: Arc<Handle>,
}

/// Ends the client when nobody has it any more.
#[derive(Debug)]
pub(crate) struct Handle(Arc<Shared>);

impl Handle {
    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Client {
    /// Connects to `quic://HOST:PORT` and says who it is. Later, when the connection is lost, it is
    /// made again as the options say, topics are bound again, and subscriptions go on with the
    /// record after their last one. It is not made again when the server has said what it would
    /// say again: that this client breaks the protocol, or, where no
    /// [`token_source`](Options::token_source) has another, that its token is not accepted or has
    /// come to its end. Then all that is left of the client ends with a
    /// [`Disconnected`].
    ///
    /// A server that says that it goes away is asked nothing new: what is published waits in the
    /// queue. What was sent is answered and what it still has for subscriptions is read, at most
    /// for the grace that it has named and never longer than an hour; then the next connection is
    /// made. A publish that was on its way and that it refused says
    /// [`Reason::Shutdown`](crate::Reason::Shutdown), and may be tried again.
    ///
    /// # Errors
    /// When the first connection cannot be made.
    pub async fn connect(url: &str, options: Options) -> Result<Self, ConnectError> {
        options
            .limits
            .check()
            .map_err(|error| ConnectError::Options(format!("limits: {error}")))?;
        options.check_workers().map_err(ConnectError::Options)?;
        let target = link::Target::find(url, &options).await?;
        let first = link::connect(&target, &options).await?;
        let shared = Shared::new(options.limits.clone(), options.publish_workers as usize);
        tokio::spawn(keep(Arc::clone(&shared), target, options, first));
        Ok(Self { handle: Arc::new(Handle(shared)) })
    }

    /// Publishes to a topic from now on.
    ///
    /// # Errors
    /// When the broker does not allow it.
    pub async fn publisher(&self, topic: &str) -> Result<Publisher, TopicError> {
        let at = self.bind(topic, Right::Publish).await?;
        Ok(Publisher::new(Arc::clone(&self.handle), at))
    }

    /// Gets a topic's records from now on, or from where the options say.
    ///
    /// # Errors
    /// When the broker does not allow it.
    pub async fn subscribe(
        &self,
        topic: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, TopicError> {
        let at = self.bind(topic, Right::Subscribe).await?;
        let shared = self.handle.shared();
        let (id, told) = shared.lock().add_sub(&shared.limits, at, options);
        // Given up before it is confirmed, it ends with this value.
        let subscription = Subscription::new(Arc::clone(&self.handle), id);
        shared.asked.notify_one();
        told.await.unwrap_or_else(|_| Err(shared.lock().topic_end()))?;
        Ok(subscription)
    }

    async fn bind(&self, topic: &str, right: Right) -> Result<usize, TopicError> {
        let shared = self.handle.shared();
        let (at, told) = shared.lock().want(topic, right)?;
        shared.asked.notify_one();
        if let Some(told) = told {
            let answer = told.await.map_err(|_| shared.lock().topic_end())?;
            answer.map_err(TopicError::Refused)?;
        }
        Ok(at)
    }

    /// What became of what was published, so far.
    pub fn stats(&self) -> Stats {
        self.handle.shared().lock().stats
    }

    /// Publishes what is queued, waits for the answers that are due, at most ten seconds, and ends
    /// the connection. Who waits for room is refused.
    pub async fn close(&self) {
        let shared = self.handle.shared();
        shared.close();
        loop {
            let mut closed = std::pin::pin!(shared.closed.notified());
            closed.as_mut().enable();
            if shared.lock().is_closed() {
                return;
            }
            closed.await;
        }
    }
}

/// Keeps a connection until the client is closed, or the server does not want it.
async fn keep(shared: Arc<Shared>, target: link::Target, options: Options, first: Link) {
    let mut backoff = Backoff::new(&options);
    let mut link = Some(first);
    while let Some(connected) = link.take() {
        let since = Instant::now();
        let said = serve(&shared, connected).await;
        if shared.lock().is_closing {
            break;
        }
        shared.lock().stats.disconnects += 1;
        if let Some(code) = said.filter(|code| options.is_final(*code)) {
            shared.lock().given_up = Some(Disconnected::told(code));
            break;
        }
        // A server that welcomes and dies at once is not asked again at once.
        if since.elapsed() >= backoff.reconnect.most {
            backoff.span = backoff.reconnect.first;
        }
        match again(&shared, &target, (&options, &mut backoff)).await {
            Ok(connected) => {
                shared.lock().stats.reconnects += 1;
                link = Some(connected);
            }
            Err(why) => shared.lock().given_up = why,
        }
    }
    shared.lock().end();
    shared.closed.notify_waiters();
}

/// How long to wait before the next try.
struct Backoff {
    reconnect: Reconnect,
    span: Duration,
    chance: Rand,
}

impl Backoff {
    fn new(options: &Options) -> Self {
        let seed = options.seed.or_else(|| getrandom::u64().ok()).unwrap_or_default();
        let reconnect = options.reconnect;
        Self { reconnect, span: reconnect.first, chance: Rand::new(seed) }
    }

    /// A random part of the span, which doubles.
    fn next(&mut self) -> Duration {
        let micros = u64::try_from(self.span.as_micros()).unwrap_or(u64::MAX);
        self.span = (self.span * 2).min(self.reconnect.most);
        Duration::from_micros(self.chance.below(micros.saturating_add(1)))
    }
}

/// Serves one connection until it ends. Answers what the server has said at the end.
async fn serve(shared: &Arc<Shared>, link: Link) -> Option<Code> {
    shared.lock().up(link.max_frame, link.streams.into());
    shared.asked.notify_one();
    let mut ending = std::pin::pin!(link::serve(shared, link));
    let closing = async {
        while !shared.lock().is_closing {
            shared.closing.notified().await;
        }
    };
    let over = tokio::select! {
        biased;
        said = &mut ending => Some(said),
        () = closing => None,
    };
    let said = match over {
        Some(said) => said,
        // Whoever does not take its last bytes in time has had its chance.
        None => timeout(FAREWELL, ending).await.ok().flatten(),
    };
    shared.lock().down();
    said
}

/// Connects again, with full jitter.
///
/// # Errors
/// When it shall not be tried any more: because of this, or because the client is being closed.
async fn again(
    shared: &Shared,
    target: &link::Target,
    (options, backoff): (&Options, &mut Backoff),
) -> Result<Link, Option<Disconnected>> {
    let attempts = backoff.reconnect.attempts.unwrap_or(u32::MAX);
    let mut last = ConnectError::Unreachable("the connection was lost".to_owned());
    for _ in 0..attempts {
        let next = async {
            sleep(backoff.next()).await;
            link::connect(target, options).await
        };
        let tried = tokio::select! {
            biased;
            () = shared.closing.notified() => return Err(None),
            tried = next => tried,
        };
        match tried {
            Ok(link) => return Ok(link),
            Err(error) => last = error,
        }
        if shared.lock().is_closing {
            return Err(None);
        }
        if let Some(code) = last.code().filter(|code| options.is_final(*code)) {
            return Err(Some(Disconnected::told(code)));
        }
    }
    Err(Some(Disconnected::after(&last, backoff.span)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Trust;

    #[test]
    fn waits_are_a_random_part_of_a_span_that_doubles_up_to_its_most() {
        let mut options = Options::new(Trust::Fingerprint([0; 32]));
        options.seed = Some(7);
        let mut backoff = Backoff::new(&options);
        let Reconnect { first, most, .. } = options.reconnect;
        for round in 0..20 {
            let span = (first * 2_u32.pow(round.min(10))).min(most);
            assert_eq!(backoff.span, span, "round {round}");
            assert!(backoff.next() <= span);
        }
        assert_eq!(backoff.span, most);
    }
}
