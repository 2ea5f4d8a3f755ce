//! Looking at the shard while it runs, and closing the run's books.

use super::*;
use crate::series::Look;

impl World<'_> {
    /// Notes the peaks of what the shard holds.
    pub(super) fn look(&mut self) {
        let (queued, parked) = self.broker.jobs();
        self.peaks.held = self.peaks.held.max(self.broker.held());
        self.peaks.queued = self.peaks.queued.max(queued.into());
        self.peaks.parked = self.peaks.parked.max(parked.into());
        self.watching.note(0, &self.broker);
    }

    /// Takes the points of the series that are due before `at`, and tells who waits how far it is.
    pub(super) fn sample(&mut self, at: u64) {
        if self.watching.is_due(at) {
            let (publishers, subscribers) = (&self.publishers, &self.subscribers);
            self.watching.take(at, &Look { brokers: &[&self.broker], publishers, subscribers });
        }
    }

    /// Notes a change of the band or of the factor.
    pub(super) fn observe(&mut self) {
        let (band, factor) = (self.broker.band(), self.broker.factor());
        let last = self.moments.last();
        if last.is_some_and(|last| (last.band, last.factor) == (band, factor)) {
            return;
        }
        if last.is_none_or(|last| last.band != band) {
            self.log.put(self.now, Fact::Band(band));
        }
        if last.is_none_or(|last| last.factor != factor) {
            self.log.put(self.now, Fact::Factor(factor));
        }
        self.moments.push(Moment { at: self.now, band, factor });
    }

    /// Tells the judge of the order when unacked publishes were pushed out.
    pub(super) fn note_pushed_out(&mut self) {
        let books = self.broker.ledger();
        let kept = books.sequenced.records + books.returned.records + books.queued.records;
        if books.admitted.records > kept + self.judges.conservation.pushed_out() {
            self.judges.order.blur();
        }
    }

    /// Compares totals after every turn, and recounts everything as often as its size allows.
    pub(super) fn recount(&mut self) -> Found {
        self.note_pushed_out();
        let books = self.broker.ledger();
        let subs = &self.subscribers;
        let sub_books = |sub: u32| self.broker.sub_books(subs[at(sub)].sub);
        self.judges.conservation.compare(books, sub_books)?;
        let size = (subs.len() + self.publishers.len()) as u64;
        let due = self.host.recounted + (size + books.lag.records + books.queued.records) / SPARING;
        self.host.turns += 1;
        if self.log.facts() < due && self.host.turns > ALWAYS {
            return Ok(());
        }
        self.host.recounted = self.log.facts();
        self.judges.conservation.compare_tables(books)?;
        self.broker.check().map_err(|broken| Finding {
            judge: "conservation",
            kind: crate::judge::Kind::Safety,
            what: broken.to_string(),
            at: None,
        })?;
        let quiet = !self.host.turning && self.calendar.next() != Some(self.now);
        if quiet { Stuck::quiescent(self.broker.check_quiescent()) } else { Ok(()) }
    }

    /// What the world and the core know of one subscriber.
    fn held(&self, subscriber: u32) -> Option<Held> {
        let sink = &self.subscribers[at(subscriber)];
        let books = self.broker.sub_books(sink.sub)?;
        Some(Held { books, in_flight: sink.flying() })
    }

    /// The run is over: everything is compared once more, and nothing may be left without reason.
    pub(super) fn end(&mut self) -> Found {
        self.host.turns = 0;
        self.recount()?;
        let mut conservation = std::mem::take(&mut self.judges.conservation);
        conservation.compare_all(self.broker.ledger(), |sub| self.held(sub))?;
        conservation.end(self.broker.ledger())?;
        for subscriber in 0..index(self.subscribers.len()) {
            let Some(held) = self.held(subscriber) else { continue };
            let drained = held.books.lag.is_zero() && held.in_flight.is_zero();
            self.judges.order.end(subscriber, &held.books, drained)?;
            if drained && !self.subscribers[at(subscriber)].parser.between_frames() {
                return Stuck::end(&Leftover {
                    subscribers: vec![(self.names.subscriber(subscriber).to_owned(), 1, false)],
                    ..Leftover::default()
                });
            }
        }
        Stuck::end(&self.leftover())
    }

    fn leftover(&self) -> Leftover {
        let mut left = Leftover::default();
        for (sub, sink) in (0_u32..).zip(&self.subscribers) {
            let name = self.names.subscriber(sub).to_owned();
            let stalled = sink.line.is_stalled(self.now);
            if stalled {
                left.stalled.push(name.clone());
            }
            let Some(held) = self.held(sub) else { continue };
            let waiting = held.books.lag.records + held.in_flight.records;
            if waiting > 0 {
                left.subscribers.push((name, waiting, stalled));
            }
        }
        for (publisher, source) in (0_u32..).zip(&self.publishers) {
            if source.paused {
                left.paused.push(self.names.publisher(publisher).to_owned());
            } else {
                left.unread += source.inbound.len() as u64;
            }
        }
        let (queued, parked) = self.broker.jobs();
        left.jobs = u64::from(queued) + u64::from(parked);
        left
    }

    /// Turns a finding into a verdict that can be looked into.
    pub(super) fn convict(&self, finding: Finding) -> Conviction {
        Conviction {
            at: finding.at.unwrap_or(self.now),
            events: self.log.recent(&self.names),
            command: self.story.command(),
            finding,
        }
    }

    /// The run's numbers.
    pub(super) fn ran(mut self, conviction: Option<Conviction>) -> Ran {
        let traces = self.traces.take().unwrap_or_default();
        let traces = self.names.subscribers.iter().cloned().zip(traces).collect();
        let look = Look {
            brokers: &[&self.broker],
            publishers: &self.publishers,
            subscribers: &self.subscribers,
        };
        let watched = self.watching.end(self.now, &look);
        let left = self.leftover();
        let drained = left.subscribers.is_empty() && left.jobs == 0 && left.unread == 0;
        let report = Report {
            name: self.story.name(),
            title: self.story.title.clone(),
            seed: self.story.seed,
            ended: self.now,
            publishers: report::publishers(self.story, &self.publishers),
            subscribers: report::subscribers(self.story, &self.broker, &self.subscribers),
            books: self.broker.ledger().clone(),
            peaks: self.peaks,
            moments: self.moments,
            drained,
            tape: self.log.tape().to_string(),
            facts: self.log.facts(),
            watched,
        };
        Ran { report, conviction, traces }
    }
}
