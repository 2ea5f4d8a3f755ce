//! What the core says becomes frames.

use super::State;
use crate::refusal;
use quinn::VarInt;
use sluicegate_core::{ConnId, Gap, Lane, Notice, Refusal, SubId};
use sluicegate_wire::quic::{CLOSE_DONE, Frame};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl State {
    pub(super) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Close { conn, why } => self.evict(conn, why),
            Notice::Committed { conn, ticket, first } => self.commit(conn, ticket, Ok(first)),
            Notice::Failed { conn, ticket, why } => self.commit(conn, ticket, Err(why)),
            Notice::Ended { sub, why } => self.ended(sub, why),
            Notice::Flushed { conn } => self.flushed(conn),
            Notice::Gap { sub, gap } => self.gap(sub, gap),
            Notice::Joined { sub, start } => self.confirm(sub, start),
            // Who brings publishes asks before each whether it may.
            Notice::Pause { .. } => {}
            Notice::Resume { conn } => {
                let conn = self.sources.get(conn.to_bits()).copied().unwrap_or(conn);
                if let Some(peer) = self.peer(conn) {
                    peer.resumed.notify_waiters();
                }
            }
            Notice::Shed { conn, records, place, reason } => {
                self.shed(conn, records, (place, reason));
            }
        }
    }

    /// The core has ended a subscription.
    fn ended(&mut self, id: SubId, why: Refusal) {
        let Some(pipe) = self.pipe_of(id) else { return };
        let (outlet, conn) = (pipe.outlet, pipe.conn);
        if let Some(request) = pipe.sub.as_mut().and_then(|sub| sub.request.take()) {
            // It never was in force.
            let _ = pipe.stream.reset(refusal::reset_code(why));
            self.drop_pipe(outlet);
            return self.refuse(conn, request, why);
        }
        if pipe.is_stuck() {
            // The peer does not read: it is told past what it was offered.
            let _ = pipe.stream.reset(refusal::reset_code(why));
            return self.drop_pipe(outlet);
        }
        self.say(outlet, &Frame::Ended { why: refusal::to_wire(why) }, Lane::InLine);
        self.end_pipe(outlet);
    }

    fn gap(&mut self, id: SubId, gap: Gap) {
        let Some(outlet) = self.pipe_of(id).map(|pipe| pipe.outlet) else { return };
        let Gap { first, last, records, place, reason } = gap;
        let why = refusal::lost(place, reason);
        self.say(outlet, &Frame::Gap { first, last, records, why }, Lane::First);
    }

    /// All that waited for a peer was written: its connection ends when the peer has it.
    fn flushed(&mut self, conn: ConnId) {
        let Some(peer) = self.peers.get(conn.to_bits()) else { return };
        let (link, has_all) = (peer.link.clone(), Arc::clone(&peer.has_all));
        let mut last = Vec::new();
        let outlets = peer.subs.values().copied().chain([peer.control]);
        for outlet in outlets {
            let Some(pipe) = self.pipes.get(outlet.to_bits()) else { continue };
            // Closed already when the peer has stopped it.
            if pipe.stream.finish().is_ok() {
                last.push(pipe.stream.stopped());
            }
        }
        let grace = self.settings.farewell;
        tokio::spawn(async move {
            let acknowledged = async {
                for stream in last {
                    // An error means that nobody waits for it any more.
                    if stream.await.is_err() {
                        return false;
                    }
                }
                true
            };
            let all = tokio::time::timeout(grace, acknowledged).await.unwrap_or(false);
            has_all.store(all, Ordering::Release);
            link.close(VarInt::from_u32(CLOSE_DONE), b"shutdown");
        });
    }
}
