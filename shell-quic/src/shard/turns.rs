//! The turn: time goes in, the core steps, its effects are carried out.

use super::{Shard, State};
use crate::refusal;
use bytes::Bytes;
use sluicegate_core::{
    Close, ConnId, Effect, Instant, Lane, OutletId, Place, Progress, Reason, Sample,
};
use sluicegate_wire::quic::Frame;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::sleep_until;

/// Deliveries that one turn prepares.
const WORK: u32 = 4096;

/// When the next turn is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// At once, after others had their turn.
    Now,
    /// When the bell rings, or at that time.
    Wait(Option<Instant>),
}

impl Shard {
    /// Runs turns for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let next = self.lock().turn();
            self.turned.notify_waiters();
            let at = match next {
                Next::Now => {
                    yield_now().await;
                    continue;
                }
                Next::Wait(at) => at,
            };
            if !self.lock().may_sleep() {
                yield_now().await;
                continue;
            }
            let clock = self.lock().clock;
            match at {
                None => self.bell.turn.notified().await,
                Some(at) => tokio::select! {
                    biased;
                    () = self.bell.turn.notified() => {}
                    () = sleep_until(clock.at(at)) => {}
                },
            }
            self.lock().woke_up();
        }
    }

    /// A reading of the memory pressure.
    pub(crate) fn pressure(&self, sample: Option<Sample>) {
        self.lock().broker.pressure(sample);
        self.bell.ring();
    }

    /// Begins to stop: nothing new is taken, what was admitted is delivered within the grace.
    pub(crate) fn stop(&self) {
        self.lock().stop();
        self.bell.ring();
    }
}

impl State {
    fn turn(&mut self) -> Next {
        self.process.turns += 1;
        self.jobs = 0;
        self.broker.advance(self.clock.now());
        self.hear();
        self.write_woken();
        self.tell_due_sheds();
        let progress = self.broker.step(WORK);
        while let Some(effect) = self.broker.poll() {
            match effect {
                Effect::Notice(notice) => self.notice(notice),
                Effect::Write(offer) => self.write(offer),
            }
        }
        let told = self.go_on_stopping();
        self.post();
        self.note_inputs();
        let deadline = self.broker.next_deadline();
        let is_due = deadline.is_some_and(|at| at <= self.broker.now());
        if told || progress == Progress::More || is_due {
            return Next::Now;
        }
        Next::Wait([deadline, self.sheds.next()].into_iter().flatten().min())
    }

    /// What other shards have sent, and what all know.
    fn hear(&mut self) {
        let Some(ways) = &mut self.ways else {
            return self.broker.node(self.broker.is_saturated());
        };
        self.broker.node(ways.node.is_saturated());
        ways.loan.settle(&mut self.broker);
        let others: Vec<u32> = ways.port.others().collect();
        let Some(first) = self.process.turns.checked_rem(others.len() as u64) else { return };
        let first = usize::try_from(first).expect("an index");
        // Each turn begins with another sender, so that none is always last.
        for from in others[first..].iter().chain(&others[..first]) {
            let mut arrived = ways.port.receive(*from);
            while self.broker.wants_parcels() {
                let Some(parcel) = arrived.next() else { break };
                self.broker.receive(*from, parcel);
            }
        }
    }

    fn post(&mut self) {
        let Some(ways) = &mut self.ways else { return };
        ways.node.set_saturated(self.broker.number(), self.broker.is_saturated());
        for to in ways.port.others() {
            let broker = &mut self.broker;
            ways.port.send(to, || broker.poll_parcel(to));
        }
    }

    /// Whether the thread may wait; from here on other shards wake it.
    fn may_sleep(&mut self) -> bool {
        let wants = self.broker.wants_parcels();
        self.ways.as_mut().is_none_or(|ways| ways.port.may_sleep(wants))
    }

    fn woke_up(&self) {
        if let Some(ways) = &self.ways {
            ways.port.wake_up();
        }
    }

    fn stop(&mut self) {
        if self.stops_at.is_some() {
            return;
        }
        self.broker.advance(self.clock.now());
        let grace_ms = self.broker.limits().shutdown_grace_ms;
        self.stops_at = Some(self.broker.now() + Duration::from_millis(grace_ms));
        self.broker.shutdown();
        // Everybody is told, once in the life of a process.
        for id in self.peers.ids() {
            self.tell(ConnId::from_bits(id), &Frame::GoAway { grace_ms });
        }
    }

    /// Once nothing waits, or the grace is over, everybody is told the end. True when that was
    /// now: it is still to be written.
    fn go_on_stopping(&mut self) -> bool {
        let Some(stops_at) = self.stops_at else { return false };
        let is_over = self.broker.is_flushed() || self.broker.now() >= stops_at;
        if self.has_said_goodbye || !is_over {
            return false;
        }
        self.has_said_goodbye = true;
        let why = refusal::lost(Place::Egress, Reason::Shutdown);
        for id in self.pipes.ids() {
            if self.pipes.get(id).is_some_and(|pipe| pipe.sub.is_some()) {
                self.say(OutletId::from_bits(id), &Frame::Ended { why }, Lane::InLine);
            }
        }
        for id in self.peers.ids() {
            // It is open, or was closed by the core a moment ago.
            let _ = self.broker.close(ConnId::from_bits(id), Close::AfterFlush, Bytes::new());
        }
        true
    }
}
