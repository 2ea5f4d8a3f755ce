//! What peers ask for on their control streams.

use super::State;
use super::peers::Bound;
use super::pipes::{Pipe, Sub};
use crate::refusal;
use quinn::SendStream;
use sluicegate_core::{
    ConnId, Lane, OutletId, Pipe as Kind, Place, Policy, Reason, Refusal, Retry, Start, SubId,
    TopicId, Wish,
};
use sluicegate_wire::quic::{self, Frame};

/// A peer wants a topic's records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) request: u64,
    /// The topic's number on the connection.
    pub(crate) topic: u32,
    pub(crate) policy: quic::Policy,
    pub(crate) batches: u32,
    pub(crate) bytes: u64,
    pub(crate) start: quic::Start,
}

const fn no(reason: Reason) -> Refusal {
    Refusal { place: Place::Table, reason, retry: Retry::Never }
}

impl State {
    /// A peer wants a number for a topic.
    pub(crate) fn bind(&mut self, conn: ConnId, request: u64, want: (bool, bool, &str)) {
        let (publish, subscribe, name) = want;
        let most = self.settings.max_topics;
        let Some(peer) = self.peers.get(conn.to_bits()) else { return };
        let may = (!publish || peer.access.may_publish(name))
            && (!subscribe || peer.access.may_subscribe(name));
        if !may || name.is_empty() {
            return self.refuse(conn, request, no(Reason::NotAllowed));
        }
        let same = |bound: &Bound| &*bound.name == name;
        let at = peer.topics.iter().position(same).unwrap_or(peer.topics.len());
        if at as u64 >= most {
            return self.refuse(conn, request, no(Reason::Limit));
        }
        let id = match self.broker.topic(self.tenants[peer.access.tenant], name) {
            Ok(id) => id,
            Err(why) => return self.refuse(conn, request, why),
        };
        match peer.topics.get_mut(at) {
            Some(bound) => {
                bound.id = id;
                bound.publish |= publish;
                bound.subscribe |= subscribe;
            }
            None => peer.topics.push(Bound { name: name.into(), id, publish, subscribe }),
        }
        let topic = u32::try_from(at).expect("below the limit of topics");
        let epoch = self.broker.topic_epoch(id).unwrap_or(0);
        self.tell(conn, &Frame::Bound { request, topic, epoch });
    }

    /// A peer wants a topic's records, and has granted a stream for them, which is taken. Answers
    /// the outlet, or none where it was refused.
    pub(crate) fn subscribe(
        &mut self,
        conn: ConnId,
        stream: &mut Option<SendStream>,
        wanted: Wanted,
    ) -> Option<OutletId> {
        match self.try_subscribe(conn, stream, wanted) {
            Ok(outlet) => Some(outlet),
            Err(why) => {
                self.refuse(conn, wanted.request, why);
                None
            }
        }
    }

    fn try_subscribe(
        &mut self,
        conn: ConnId,
        stream: &mut Option<SendStream>,
        wanted: Wanted,
    ) -> Result<OutletId, Refusal> {
        let Wanted { request, topic: number, .. } = wanted;
        let most = self.settings.max_subscriptions;
        let peer = self.peers.get(conn.to_bits()).ok_or(no(Reason::Gone))?;
        let at = usize::try_from(number).ok().and_then(|number| peer.topics.get(number));
        let bound = at.ok_or(no(Reason::Gone))?;
        let topic = bound.id;
        if !bound.subscribe {
            return Err(no(Reason::NotAllowed));
        }
        if peer.subs.len() as u64 >= most {
            return Err(no(Reason::Limit));
        }
        let wish = self.wish(wanted);
        let outlet = self.broker.outlet(conn, Kind::Single)?;
        let mut sub = self.broker.subscribe(outlet, topic, wish);
        if sub.is_err_and(|why| why.reason == Reason::Gone)
            && let Some(topic) = self.rebind(conn, number)
        {
            sub = self.broker.subscribe(outlet, topic, wish);
        }
        let id = match sub {
            Ok(id) => id,
            Err(why) => {
                self.broker.shut(outlet);
                return Err(why);
            }
        };
        let peer = self.peers.get(conn.to_bits()).expect("it was there above");
        let stream = stream.take().expect("whoever asks has a stream");
        let mut pipe = Pipe::new((conn, outlet), stream, &self.bell);
        let number = peer.next_sub;
        peer.next_sub = number.wrapping_add(1);
        peer.subs.insert(number, outlet);
        pipe.sub = Some(Sub { id, number, request: Some(request), topic });
        self.pipes.insert(outlet.to_bits(), pipe);
        self.subs.insert(id.to_bits(), outlet);
        if let Some(start) = self.broker.start_of(id) {
            self.confirm(id, start);
        }
        Ok(outlet)
    }

    /// A subscription is in force: it is told first on its own stream.
    pub(super) fn confirm(&mut self, id: SubId, start: u64) {
        let Some(pipe) = self.pipe_of(id) else { return };
        let outlet = pipe.outlet;
        let Some(sub) = pipe.sub.as_mut() else { return };
        let Some(request) = sub.request.take() else { return };
        let (subscription, topic): (u32, TopicId) = (sub.number, sub.topic);
        let epoch = self.broker.topic_epoch(topic).unwrap_or(0);
        let frame = Frame::Subscribed { request, subscription, epoch, start };
        self.say(outlet, &frame, Lane::First);
    }

    /// A peer has enough of a subscription.
    pub(crate) fn unsubscribe(&mut self, conn: ConnId, number: u32) {
        let Some(peer) = self.peers.get(conn.to_bits()) else { return };
        // It may have ended while the peer was asking.
        let Some(outlet) = peer.subs.get(&number).copied() else { return };
        let Some(pipe) = self.pipes.get(outlet.to_bits()) else { return };
        let Some(sub) = pipe.sub.filter(|_| !pipe.is_ending) else { return };
        // It is live, or the core has just ended it, which the next turn tells.
        if self.broker.unsubscribe(sub.id).is_ok() {
            let why = refusal::to_wire(no(Reason::Closed));
            self.say(outlet, &Frame::Ended { why }, Lane::InLine);
            self.end_pipe(outlet);
        }
    }

    fn wish(&self, wanted: Wanted) -> Wish {
        let policy = match wanted.policy {
            quic::Policy::Default if self.broker.limits().lossless == 1 => Policy::Block,
            quic::Policy::Default | quic::Policy::DropNew => Policy::DropNew,
            quic::Policy::Block => Policy::Block,
            quic::Policy::DropOld => Policy::DropOld,
            quic::Policy::Latest => Policy::Latest,
        };
        let start = match wanted.start {
            quic::Start::Tail => Start::Tail,
            quic::Start::Earliest => Start::Earliest,
            quic::Start::Last(records) => Start::Last(records),
            quic::Start::At { epoch, sequence } => Start::At { epoch, sequence },
        };
        Wish { policy, batches: wanted.batches, bytes: wanted.bytes, start }
    }
}
