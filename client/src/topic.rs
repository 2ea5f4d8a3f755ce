//! What a client may do with one topic, on this connection and on those to come.

use crate::error::Refusal;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Tells whether a right was granted.
pub(crate) type Bound = oneshot::Receiver<Result<(), Refusal>>;

/// What an application wants of a topic. Each right is asked for by itself: one that is refused
/// takes no other with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    Publish,
    Subscribe,
}

/// A topic that the application has named.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    /// Its number on the connection, once a right was granted there.
    pub(crate) number: Option<u32>,
    publish: Claim,
    subscribe: Claim,
}

/// One right to one topic.
#[derive(Debug, Default)]
struct Claim {
    /// Asked for on every connection.
    is_wanted: bool,
    /// Asked for on this connection, and not answered.
    is_asked: bool,
    /// In force on this connection.
    is_granted: bool,
    /// Was granted on some connection: a later refusal may pass.
    was_granted: bool,
    refused: Option<Refusal>,
    waiting: Vec<oneshot::Sender<Result<(), Refusal>>>,
}

impl Topic {
    pub(crate) fn new(name: &str) -> Self {
        let (publish, subscribe) = (Claim::default(), Claim::default());
        Self { name: name.into(), number: None, publish, subscribe }
    }

    const fn claim(&mut self, right: Right) -> &mut Claim {
        match right {
            Right::Publish => &mut self.publish,
            Right::Subscribe => &mut self.subscribe,
        }
    }

    /// Wants a right. Answers who tells when it is granted; none when it is already.
    pub(crate) fn want(&mut self, right: Right) -> Option<Bound> {
        let claim = self.claim(right);
        claim.is_wanted = true;
        if claim.is_granted {
            return None;
        }
        claim.refused = None;
        // Those who have given up hold no memory.
        claim.waiting.retain(|tell| !tell.is_closed());
        let (tell, told) = oneshot::channel();
        claim.waiting.push(tell);
        Some(told)
    }

    /// Whether this right has to be asked for now; if so, it is.
    pub(crate) fn ask(&mut self, right: Right) -> bool {
        let claim = self.claim(right);
        let asks = claim.is_wanted && !claim.is_asked && !claim.is_granted;
        claim.is_asked |= asks;
        asks
    }

    pub(crate) fn grant(&mut self, right: Right, number: u32) {
        self.number = Some(number);
        let claim = self.claim(right);
        (claim.is_asked, claim.is_granted, claim.was_granted) = (false, true, true);
        claim.refused = None;
        claim.answer(Ok(()));
    }

    pub(crate) fn refuse(&mut self, right: Right, why: Refusal) {
        let claim = self.claim(right);
        claim.is_asked = false;
        claim.is_wanted = claim.was_granted;
        claim.refused = Some(why);
        claim.answer(Err(why));
    }

    /// The connection is gone.
    pub(crate) fn down(&mut self) {
        self.number = None;
        for claim in [&mut self.publish, &mut self.subscribe] {
            (claim.is_asked, claim.is_granted) = (false, false);
        }
    }

    /// There will be no connection: who waits learns from the end of the channel.
    pub(crate) fn end(&mut self) {
        self.publish.waiting.clear();
        self.subscribe.waiting.clear();
    }

    /// The number to publish with; none while it is not known.
    ///
    /// # Errors
    /// When the broker has said no.
    pub(crate) const fn publishes(&self) -> Result<Option<u32>, Refusal> {
        match self.publish.refused {
            Some(why) => Err(why),
            None if self.publish.is_granted => Ok(self.number),
            None => Ok(None),
        }
    }

    /// The number to subscribe with; none while it is not known.
    pub(crate) fn subscribes(&self) -> Option<u32> {
        self.number.filter(|_| self.subscribe.is_granted)
    }
}

impl Claim {
    fn answer(&mut self, answer: Result<(), Refusal>) {
        for tell in std::mem::take(&mut self.waiting) {
            // Who has asked may have given up.
            let _ = tell.send(answer);
        }
    }
}
