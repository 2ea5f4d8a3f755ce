//! The books as OpenMetrics text.
//!
//! Nothing here counts: every number is read from the broker's books and looks at the moment of
//! the scrape. With several shards each reads its own, and the sum is shown.
//! Cost of a scrape: O(cells of the books + tenants) per shard, whatever is connected.

use crate::strangers::{Strangers, Unwelcome};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use sluicegate_core::{Band, Books, Broker, Place, Reason, Table, Tally, TenantId};
use std::fmt;

/// The content type of [`exposition`]'s text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Tenants with a label of their own; the rest are summed under [`OTHERS`].
pub const MAX_TENANT_LABELS: usize = 100;

/// The label of all tenants beyond [`MAX_TENANT_LABELS`].
pub const OTHERS: &str = "others";

/// Numbers that only the shell knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Open sockets.
    pub sockets: u64,
    /// Sockets closed at once because the core had no room for a connection.
    pub refused_sockets: u64,
    /// Calls of the publishing API answered 503 before anything of them was checked.
    pub refused_calls: u64,
    /// Times that accepting stopped because the process was out of file descriptors.
    pub accept_stalls: u64,
    /// Passes of the event loop.
    pub turns: u64,
    /// Events for webhooks that were taken, given up, and found no room; and those that wait.
    pub webhooks: Webhooks,
    /// What may not have arrived; none where the transport cannot tell.
    pub unconfirmed: Option<Unconfirmed>,
    /// Times that a certificate or a key could not be read again; none where they are not.
    pub failed_reloads: Option<u64>,
    /// Connections that were not let in; none where they are not counted by reason.
    pub strangers: Option<Strangers>,
}

/// What was delivered to connections that died before their peers had acknowledged it. It is a note
/// beside the books: a part of what they call delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unconfirmed {
    /// Connections that died so.
    pub connections: u64,
    /// The most that did not arrive, with heads and control frames.
    pub bytes: u64,
}

impl std::ops::AddAssign for Unconfirmed {
    fn add_assign(&mut self, other: Self) {
        self.connections += other.connections;
        self.bytes += other.bytes;
    }
}

/// What became of events for webhooks, each counted once per endpoint that wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Webhooks {
    /// Answered with a status from 200 to 299.
    pub delivered: u64,
    /// Not taken in five minutes, or not before the end.
    pub given_up: u64,
    /// Found no room.
    pub overflowed: u64,
    /// Waiting, or on their way.
    pub waiting: u64,
}

/// The text of a scrape of a process with one shard; see [`Numbers`].
pub fn exposition(broker: &Broker, tenants: &[(&str, TenantId)], process: Process) -> String {
    Numbers::read(broker, tenants, process).text()
}

/// What is shown of one shard, or of several: counts and levels are summed up, of marks that the
/// shards have in common the worst is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    books: Books,
    tenants: Vec<(String, Totals)>,
    band: Band,
    gauges: [Gauge; GAUGES],
    /// What all shards may hold together: each knows the same.
    budget: u64,
    /// The pressure factor, in thousandths.
    factor: u32,
    process: Process,
    /// Open sockets of each event loop: number and count.
    loops: Vec<(u32, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gauge {
    name: &'static str,
    help: &'static str,
    value: u64,
}

const GAUGES: usize = 6;

/// One tally per column, tables summed up.
type Totals = [(&'static str, Tally); 16];

/// Columns that also fall: gauges.
const LEVELS: [&str; 3] = ["waiting", "queued", "lag"];

impl Numbers {
    /// Reads one shard. `tenants` are named by the shell, those that shall have a label of their
    /// own first. Cost: O(cells of the books + tenants).
    pub fn read(broker: &Broker, tenants: &[(&str, TenantId)], process: Process) -> Self {
        let books = |tenant| broker.tenant_books(tenant).map(Books::columns);
        let (named, rest) = tenants.split_at(tenants.len().min(MAX_TENANT_LABELS));
        let mut pages: Vec<(String, Totals)> = named
            .iter()
            .filter_map(|(name, tenant)| Some(((*name).to_owned(), books(*tenant)?)))
            .collect();
        let others =
            rest.iter().filter_map(|(_, tenant)| books(*tenant)).reduce(|mut sum, page| {
                add_totals(&mut sum, &page);
                sum
            });
        pages.extend(others.map(|page| (OTHERS.to_owned(), page)));
        Self {
            books: broker.ledger().clone(),
            tenants: pages,
            band: broker.band(),
            gauges: gauges(broker, process),
            budget: broker.limits().memory_budget,
            factor: broker.factor().thousandths(),
            process,
            loops: vec![(broker.number(), process.sockets)],
        }
    }

    /// Adds what another shard of the same process has read. One that has already heard of a new
    /// tenant names it after the others.
    pub fn add(&mut self, other: &Self) {
        self.books += &other.books;
        for (place, (name, part)) in other.tenants.iter().enumerate() {
            let here = self.tenants.get(place).is_some_and(|(own, _)| own == name);
            let known = || self.tenants.iter().position(|(own, _)| own == name);
            match if here { Some(place) } else { known() } {
                Some(at) => add_totals(&mut self.tenants[at].1, part),
                None => self.tenants.push((name.clone(), *part)),
            }
        }
        self.band = self.band.max(other.band);
        for (sum, part) in self.gauges.iter_mut().zip(&other.gauges) {
            sum.value += part.value;
        }
        self.factor = self.factor.min(other.factor);
        let Process { sockets, refused_sockets, refused_calls, accept_stalls, turns, .. } =
            other.process;
        let Process { webhooks, unconfirmed, failed_reloads, strangers, .. } = other.process;
        if let Some(part) = strangers {
            *self.process.strangers.get_or_insert_default() += part;
        }
        if let Some(part) = failed_reloads {
            *self.process.failed_reloads.get_or_insert_default() += part;
        }
        if let Some(part) = unconfirmed {
            *self.process.unconfirmed.get_or_insert_default() += part;
        }
        self.process.webhooks.delivered += webhooks.delivered;
        self.process.webhooks.given_up += webhooks.given_up;
        self.process.webhooks.overflowed += webhooks.overflowed;
        self.process.webhooks.waiting += webhooks.waiting;
        self.process.sockets += sockets;
        self.process.refused_sockets += refused_sockets;
        self.process.refused_calls += refused_calls;
        self.process.accept_stalls += accept_stalls;
        self.process.turns += turns;
        self.loops.extend(&other.loops);
        self.loops.sort_unstable();
    }

    /// The text of a scrape; it ends with `# EOF`.
    pub fn text(self) -> String {
        let mut registry = Registry::with_prefix("sluicegate");
        registry.register_collector(Box::new(Page(self)));
        let mut out = String::new();
        text::encode(&mut out, &registry).expect("a string takes any text");
        out
    }
}

fn add_totals(sum: &mut Totals, page: &Totals) {
    for (total, part) in sum.iter_mut().zip(page) {
        total.1 += part.1;
    }
}

fn gauges(broker: &Broker, process: Process) -> [Gauge; GAUGES] {
    let (connections, subscriptions) = broker.counts();
    let (jobs, parked) = broker.jobs();
    let gauge = |name, help, value| Gauge { name, help, value };
    [
        gauge(
            "connections",
            "Moves when the core opens or ends a connection: one per socket, and one more for a \
             socket that has published over HTTP",
            connections.into(),
        ),
        gauge(
            "inflight_bytes",
            "Rises when a publish is admitted, falls when it has reached its whole audience",
            broker.inflight(),
        ),
        gauge(
            "jobs",
            "Rises when a publish is admitted or waits for room, falls when it is sequenced or \
             refused",
            u64::from(jobs) + u64::from(parked),
        ),
        gauge(
            "memory_held_bytes",
            "Moves with all that the core holds: messages once, queue slots, tables",
            broker.held(),
        ),
        gauge(
            "sockets",
            "Moves when a socket is accepted or closed, whatever it speaks",
            process.sockets,
        ),
        gauge(
            "subscriptions",
            "Moves when a peer subscribes and when a subscription ends",
            subscriptions.into(),
        ),
    ]
}

/// Everything of one scrape.
#[derive(Debug)]
struct Page(Numbers);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut encoder;
        self.cells(out, "records", |tally| tally.records)?;
        self.cells(out, "bytes", |tally| tally.bytes)?;
        for kind in [MetricType::Counter, MetricType::Gauge] {
            self.tenant_totals(out, kind, "records", |tally| tally.records)?;
            self.tenant_totals(out, kind, "bytes", |tally| tally.bytes)?;
        }
        self.levels(out)?;
        for Gauge { name, help, value } in &self.0.gauges {
            out.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(value)?;
        }
        self.loops(out)?;
        let help = "Set at start: what all shards may hold together while the pressure factor is 1";
        out.encode_descriptor("memory_budget_bytes", help, None, MetricType::Gauge)?
            .encode_gauge(&self.0.budget)?;
        let help = "Moves with each reading of the kernel's memory pressure: the part of the \
                    memory budget in force";
        out.encode_descriptor("memory_factor", help, None, MetricType::Gauge)?
            .encode_gauge(&(f64::from(self.0.factor) / 1000.0))?;
        let help = "1 for the memory band in force, else 0; moves when what is held crosses a mark";
        let mut bands = out.encode_descriptor("band", help, None, MetricType::Gauge)?;
        for band in Band::ALL {
            let on = u64::from(band == self.0.band);
            bands.encode_family(&[("band", band.name())])?.encode_gauge(&on)?;
        }
        for (name, help, value) in [
            (
                "accept_stalls",
                "Moves when accepting stops because the process is out of file descriptors",
                self.0.process.accept_stalls,
            ),
            (
                "refused_calls",
                "Moves when a call of the publishing API is answered 503 before anything of it was \
                 checked: its records are in no column of the books",
                self.0.process.refused_calls,
            ),
            (
                "refused_sockets",
                "Moves when a new socket is closed at once because `max_connections` is reached",
                self.0.process.refused_sockets,
            ),
            (
                "turns",
                "Moves with each pass of the event loop: about once per second in silence",
                self.0.process.turns,
            ),
        ] {
            out.encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter(&value, NO_EXEMPLAR)?;
        }
        if let Some(failed) = self.0.process.failed_reloads {
            let help = "Moves when a certificate or a key cannot be read again: that of before \
                        stays in force";
            out.encode_descriptor("failed_reloads", help, None, MetricType::Counter)?
                .encode_counter(&failed, NO_EXEMPLAR)?;
        }
        self.strangers(out)?;
        self.unconfirmed(out)?;
        self.webhooks(out)
    }
}

/// Counters carry none.
const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, u64>> = None;

type Unit = fn(Tally) -> u64;

/// Whether overload fills this cell sooner or later. These are shown while they are zero, so that
/// the first step of each is a step; the others appear once they have something to show.
fn is_usual(column: &str, place: Place, reason: Reason) -> bool {
    use Reason as R;
    match (column, place) {
        ("refused" | "shed", Place::Admission) => {
            matches!(reason, R::BytesConn | R::BytesShard | R::BytesTenant | R::Oversize)
        }
        ("refused" | "shed", Place::Memory) => reason == R::Saturated,
        ("refused", Place::Schedule) => {
            matches!(reason, R::Deadline | R::Oversize | R::QueueFull)
        }
        ("refused", Place::Table) => matches!(reason, R::Limit | R::Oversize),
        ("shed", Place::Schedule) => reason == R::QueueFull,
        ("evicted", Place::Schedule) => reason == R::TenantShare,
        ("dropped", Place::Backlog) => matches!(reason, R::DropNew | R::DropOld),
        ("dropped", Place::Egress) => reason == R::Closed,
        ("dropped", Place::Memory) => matches!(reason, R::Pressure | R::Saturated | R::Severe),
        _ => false,
    }
}

impl Page {
    /// Every cell of the shard's books that only grows.
    fn cells(&self, out: &mut DescriptorEncoder<'_>, unit: &str, of: Unit) -> fmt::Result {
        let help = format!(
            "Moves when {unit} enter a column of the books: offered + returned = admitted + \
             refused + shed + waiting; admitted + received = sequenced + evicted + returned + \
             queued + forwarded; expected = delivered + dropped + left + lag"
        );
        let mut cells = out.encode_descriptor(unit, &help, None, MetricType::Counter)?;
        let mut cell = |labels: &[(&str, &str)], tally: Tally| {
            let mut cell = cells.encode_family(&labels)?;
            cell.encode_counter(&of(tally), NO_EXEMPLAR)
        };
        let books = &self.0.books;
        for (column, tally) in [
            ("offered", books.offered),
            ("admitted", books.admitted),
            ("returned", books.returned),
            ("forwarded", books.forwarded),
            ("received", books.received),
            ("sequenced", books.sequenced),
            ("expected", books.expected),
            ("delivered", books.delivered),
            ("left", books.left),
        ] {
            cell(&[("column", column)], tally)?;
        }
        let tables: [(&str, &Table); 4] = [
            ("refused", &books.refused),
            ("shed", &books.shed),
            ("evicted", &books.evicted),
            ("dropped", &books.dropped),
        ];
        for (column, table) in tables {
            let cells = Place::ALL.into_iter().flat_map(|p| Reason::ALL.map(|r| (p, r)));
            for (place, reason) in cells {
                let tally = table.get(place, reason);
                if tally.is_zero() && !is_usual(column, place, reason) {
                    continue;
                }
                let labels =
                    [("column", column), ("place", place.name()), ("reason", reason.name())];
                cell(&labels, tally)?;
            }
        }
        Ok(())
    }

    /// The columns of each tenant, places and reasons summed up: those that only grow, or the
    /// others.
    fn tenant_totals(
        &self,
        out: &mut DescriptorEncoder<'_>,
        kind: MetricType,
        unit: &str,
        of: Unit,
    ) -> fmt::Result {
        let grows = matches!(kind, MetricType::Counter);
        let (name, help) = if grows {
            (format!("tenant_{unit}"), "Moves with the books of one tenant, all places summed up")
        } else {
            (format!("tenant_level_{unit}"), "Moves with the levels in the books of one tenant")
        };
        let mut family = out.encode_descriptor(&name, help, None, kind)?;
        for (tenant, page) in &self.0.tenants {
            for (column, tally) in
                page.iter().filter(|(column, _)| LEVELS.contains(column) != grows)
            {
                let labels = [("tenant", tenant.as_str()), ("column", *column)];
                let mut cell = family.encode_family(&labels)?;
                if grows {
                    cell.encode_counter(&of(*tally), NO_EXEMPLAR)?;
                } else {
                    cell.encode_gauge(&of(*tally))?;
                }
            }
        }
        Ok(())
    }

    fn strangers(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(strangers) = self.0.process.strangers else { return Ok(()) };
        let help = "Moves when a connection is not let in, by reason: it has no part in the books";
        let counter = MetricType::Counter;
        let mut family = out.encode_descriptor("refused_connections", help, None, counter)?;
        for why in Unwelcome::ALL {
            family
                .encode_family(&[("reason", why.name())])?
                .encode_counter(&strangers.refused(why), NO_EXEMPLAR)?;
        }
        let help = "Moves when so many are about to say who they are that a newcomer must prove \
                    its address first";
        out.encode_descriptor("retried_handshakes", help, None, counter)?
            .encode_counter(&strangers.retried, NO_EXEMPLAR)
    }

    fn unconfirmed(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(Unconfirmed { connections, bytes }) = self.0.process.unconfirmed else {
            return Ok(());
        };
        for (name, help, value) in [
            (
                "unconfirmed_connections",
                "Moves when a connection dies before its peer has acknowledged all that was \
                 delivered to it",
                connections,
            ),
            (
                "unconfirmed_bytes",
                "Moves then too, by the most that may not have arrived: a part of what the books \
                 call delivered, with heads and control frames",
                bytes,
            ),
        ] {
            out.encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter(&value, NO_EXEMPLAR)?;
        }
        Ok(())
    }

    fn webhooks(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Webhooks { delivered, given_up, overflowed, waiting } = self.0.process.webhooks;
        let help = "Moves when an event for a webhook's endpoint is taken, is given up, or finds \
                    no room: once per endpoint that wants it";
        let mut events =
            out.encode_descriptor("webhook_events", help, None, MetricType::Counter)?;
        let outcomes =
            [("delivered", delivered), ("given_up", given_up), ("overflowed", overflowed)];
        for (outcome, value) in outcomes {
            events.encode_family(&[("outcome", outcome)])?.encode_counter(&value, NO_EXEMPLAR)?;
        }
        let help = "Rises with each event for a webhook's endpoint, falls when it is told or lost";
        out.encode_descriptor("webhook_waiting", help, None, MetricType::Gauge)?
            .encode_gauge(&waiting)
    }

    /// How the sockets are spread over the event loops.
    fn loops(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Moves when an event loop accepts or closes a socket; `sockets` is their sum";
        let mut family = out.encode_descriptor("loop_sockets", help, None, MetricType::Gauge)?;
        for (number, sockets) in &self.0.loops {
            family.encode_family(&[("loop", *number)])?.encode_gauge(sockets)?;
        }
        Ok(())
    }

    /// The columns that also fall.
    fn levels(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let books = &self.0.books;
        let columns = [
            ("lag", "reach a subscription, falls when they end", books.lag),
            ("queued", "are admitted, falls when they are sequenced or evicted", books.queued),
            ("waiting", "are parked, falls when they are admitted or refused", books.waiting),
        ];
        for (column, moves, tally) in columns {
            for (unit, value) in [("records", tally.records), ("bytes", tally.bytes)] {
                let help = format!("Rises when {unit} {moves}");
                out.encode_descriptor(&format!("{column}_{unit}"), &help, None, MetricType::Gauge)?
                    .encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use sluicegate_core::{
        Ack, Effect, Instant, Keep, Lane, Limits, Message, Pipe, Policy, Verdict, Wish,
    };

    fn message(frame: &'static str) -> Message {
        Message {
            frame: Bytes::from_static(frame.as_bytes()),
            records: 1,
            ack: Ack::None,
            except: None,
            keep: Keep::Default,
        }
    }

    /// A shard in which a peer has taken one batch, been offered another, and one was refused.
    fn broker() -> (Broker, TenantId) {
        let mut broker = Broker::new(Limits::default(), 1);
        let tenant = broker.tenant(1).unwrap();
        let conn = broker.open(tenant).unwrap();
        let outlet = broker.outlet(conn, Pipe::Shared).unwrap();
        let topic = broker.topic(tenant, "news").unwrap();
        broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
        broker.advance(Instant::from_millis(1));
        broker.send(outlet, Bytes::from_static(b"hello"), Lane::First).unwrap();
        for frame in ["abc", "defgh"] {
            assert!(matches!(broker.publish(conn, topic, message(frame)), Verdict::Queued(_)));
        }
        assert!(matches!(broker.publish(conn, topic, message("i")), Verdict::Queued(_)));
        while broker.step(100) == sluicegate_core::Progress::More {}
        while let Some(effect) = broker.poll() {
            if let Effect::Write(offer) = effect {
                broker.sent(offer, 5 + 3);
            }
        }
        let refused = Message { records: 0, ..message("xy") };
        assert!(matches!(broker.publish(conn, topic, refused), Verdict::Shed(_)));
        (broker, tenant)
    }

    fn lines(text: &str) -> Vec<&str> {
        text.lines().filter(|line| !line.starts_with('#')).collect()
    }

    #[test]
    fn shards_that_do_not_know_the_same_tenants_yet_are_summed_up_by_name() {
        let (broker, tenant) = broker();
        let read = |names: &[&str]| {
            let tenants: Vec<_> = names.iter().map(|name| (*name, tenant)).collect();
            Numbers::read(&broker, &tenants, Process::default())
        };
        let mut sum = read(&["a", "b"]);
        for names in [&["a", "c", "b"][..], &["a"]] {
            sum.add(&read(names));
        }
        let delivered = |(name, page): &(String, Totals)| {
            let column = page.iter().find(|(column, _)| *column == "delivered").unwrap();
            (name.clone(), column.1.records)
        };
        let found: Vec<_> = sum.tenants.iter().map(delivered).collect();
        assert_eq!(found, [("a", 3), ("b", 2), ("c", 1)].map(|(n, count)| (n.to_owned(), count)));
    }

    #[test]
    fn every_column_is_there_and_the_text_is_whole() {
        let (broker, tenant) = broker();
        let process = Process {
            sockets: 1,
            refused_sockets: 3,
            refused_calls: 5,
            accept_stalls: 2,
            turns: 4,
            webhooks: Webhooks { delivered: 6, given_up: 7, overflowed: 8, waiting: 9 },
            unconfirmed: None,
            failed_reloads: None,
            strangers: None,
        };
        let text = exposition(&broker, &[("1001", tenant)], process);
        assert!(text.ends_with("# EOF\n"), "{text}");
        assert!(!text.contains("unconfirmed"), "nobody could tell: {text}");
        assert!(!text.contains("refused_connections"), "nobody counts them: {text}");
        let lines = lines(&text);
        for line in [
            "sluicegate_records_total{column=\"offered\"} 3",
            "sluicegate_records_total{column=\"expected\"} 3",
            "sluicegate_records_total{column=\"delivered\"} 1",
            "sluicegate_bytes_total{column=\"delivered\"} 3",
            "sluicegate_bytes_total{column=\"shed\",place=\"admission\",reason=\"oversize\"} 2",
            "sluicegate_tenant_records_total{tenant=\"1001\",column=\"delivered\"} 1",
            "sluicegate_tenant_bytes_total{tenant=\"1001\",column=\"shed\"} 2",
            "sluicegate_tenant_level_records{tenant=\"1001\",column=\"lag\"} 2",
            "sluicegate_lag_records 2",
            "sluicegate_lag_bytes 6",
            "sluicegate_waiting_records 0",
            "sluicegate_queued_bytes 0",
            "sluicegate_band{band=\"normal\"} 1",
            "sluicegate_band{band=\"saturated\"} 0",
            "sluicegate_memory_factor 1.0",
            "sluicegate_inflight_bytes 0",
            "sluicegate_connections 1",
            "sluicegate_subscriptions 1",
            "sluicegate_sockets 1",
            "sluicegate_loop_sockets{loop=\"0\"} 1",
            "sluicegate_accept_stalls_total 2",
            "sluicegate_refused_calls_total 5",
            "sluicegate_refused_sockets_total 3",
            "sluicegate_turns_total 4",
            "sluicegate_webhook_events_total{outcome=\"delivered\"} 6",
            "sluicegate_webhook_events_total{outcome=\"given_up\"} 7",
            "sluicegate_webhook_events_total{outcome=\"overflowed\"} 8",
            "sluicegate_webhook_waiting 9",
        ] {
            assert!(lines.contains(&line), "{line} is missing in\n{text}");
        }
        let held = format!("sluicegate_memory_held_bytes {}", broker.held());
        assert!(lines.contains(&held.as_str()), "{held}");
    }

    #[test]
    fn several_shards_are_summed_up_and_what_they_share_is_not() {
        let limits = Limits { shards: 2, ..Limits::default() };
        let mut second = Broker::shard(limits.clone(), 1, 1);
        let other = second.tenant(1).unwrap();
        second.pressure(sluicegate_core::Sample::parse(
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n\
             full avg10=90.00 avg60=0.00 avg300=0.00 total=0\n",
        ));
        let conn = second.open(other).unwrap();
        let topic = second.topic(other, "news").unwrap();
        let refused = Message { records: 0, ..message("xyz") };
        assert!(matches!(second.publish(conn, topic, refused), Verdict::Shed(_)));
        let (first, tenant) = broker();
        let mut strangers = Strangers::default();
        strangers.retried = 3;
        strangers.refuse(Unwelcome::Version);
        let process = Process {
            sockets: 2,
            refused_sockets: 1,
            refused_calls: 1,
            accept_stalls: 1,
            turns: 3,
            webhooks: Webhooks { delivered: 1, ..Webhooks::default() },
            unconfirmed: Some(Unconfirmed { connections: 1, bytes: 7 }),
            failed_reloads: Some(4),
            strangers: Some(strangers),
        };
        let mut sum = Numbers::read(&second, &[("1001", other)], process);
        sum.add(&Numbers::read(&first, &[("1001", tenant)], process));
        let text = sum.text();
        let budget = format!("sluicegate_memory_budget_bytes {}", limits.memory_budget);
        let factor = f64::from(second.factor().thousandths()) / 1000.0;
        assert!(factor < 1.0);
        let factor = format!("sluicegate_memory_factor {factor}");
        let held = format!("sluicegate_memory_held_bytes {}", first.held() + second.held());
        let lines = lines(&text);
        for line in [
            "sluicegate_records_total{column=\"offered\"} 3",
            "sluicegate_bytes_total{column=\"delivered\"} 3",
            "sluicegate_bytes_total{column=\"shed\",place=\"admission\",reason=\"oversize\"} 5",
            "sluicegate_tenant_bytes_total{tenant=\"1001\",column=\"shed\"} 5",
            "sluicegate_connections 2",
            "sluicegate_sockets 4",
            "sluicegate_loop_sockets{loop=\"0\"} 2",
            "sluicegate_loop_sockets{loop=\"1\"} 2",
            "sluicegate_accept_stalls_total 2",
            "sluicegate_failed_reloads_total 8",
            "sluicegate_refused_calls_total 2",
            "sluicegate_refused_connections_total{reason=\"busy\"} 0",
            "sluicegate_refused_connections_total{reason=\"version\"} 2",
            "sluicegate_refused_sockets_total 2",
            "sluicegate_retried_handshakes_total 6",
            "sluicegate_turns_total 6",
            "sluicegate_unconfirmed_bytes_total 14",
            "sluicegate_unconfirmed_connections_total 2",
            "sluicegate_webhook_events_total{outcome=\"delivered\"} 2",
            &budget,
            &factor,
            &held,
        ] {
            assert!(lines.contains(&line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn what_overload_moves_is_there_from_the_start() {
        let text = exposition(&Broker::new(Limits::default(), 1), &[], Process::default());
        let cells: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("sluicegate_records_total{column=\""))
            .filter(|line| line.contains("place"))
            .collect();
        let expected = "\
            refused\",place=\"admission\",reason=\"bytes_shard\"} 0
            refused\",place=\"admission\",reason=\"bytes_tenant\"} 0
            refused\",place=\"admission\",reason=\"bytes_conn\"} 0
            refused\",place=\"admission\",reason=\"oversize\"} 0
            refused\",place=\"memory\",reason=\"saturated\"} 0
            refused\",place=\"schedule\",reason=\"deadline\"} 0
            refused\",place=\"schedule\",reason=\"oversize\"} 0
            refused\",place=\"schedule\",reason=\"queue_full\"} 0
            refused\",place=\"table\",reason=\"limit\"} 0
            refused\",place=\"table\",reason=\"oversize\"} 0
            shed\",place=\"admission\",reason=\"bytes_shard\"} 0
            shed\",place=\"admission\",reason=\"bytes_tenant\"} 0
            shed\",place=\"admission\",reason=\"bytes_conn\"} 0
            shed\",place=\"admission\",reason=\"oversize\"} 0
            shed\",place=\"memory\",reason=\"saturated\"} 0
            shed\",place=\"schedule\",reason=\"queue_full\"} 0
            evicted\",place=\"schedule\",reason=\"tenant_share\"} 0
            dropped\",place=\"backlog\",reason=\"drop_new\"} 0
            dropped\",place=\"backlog\",reason=\"drop_old\"} 0
            dropped\",place=\"egress\",reason=\"closed\"} 0
            dropped\",place=\"memory\",reason=\"pressure\"} 0
            dropped\",place=\"memory\",reason=\"saturated\"} 0
            dropped\",place=\"memory\",reason=\"severe\"} 0";
        assert_eq!(cells, expected.lines().map(str::trim).collect::<Vec<_>>());
        for column in ["offered", "admitted", "returned", "expected", "delivered", "left"] {
            let line = format!("sluicegate_records_total{{column=\"{column}\"}} 0");
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn every_family_says_when_it_moves() {
        let (broker, tenant) = broker();
        let text = exposition(&broker, &[("1001", tenant)], Process::default());
        let types = text.lines().filter(|line| line.starts_with("# TYPE")).count();
        let helps: Vec<_> = text.lines().filter(|line| line.starts_with("# HELP")).collect();
        assert_eq!(types, helps.len());
        for help in helps {
            let moves = ["Moves", "Rises", "moves", "Set at start"];
            assert!(moves.iter().any(|word| help.contains(word)), "{help}");
        }
    }

    #[test]
    fn tenants_beyond_the_bound_share_a_label() {
        let mut broker = Broker::new(Limits::default(), 1);
        let names: Vec<String> = (0..MAX_TENANT_LABELS + 2).map(|n| n.to_string()).collect();
        let tenants: Vec<(&str, TenantId)> =
            names.iter().map(|name| (name.as_str(), broker.tenant(1).unwrap())).collect();
        for (_, tenant) in &tenants[MAX_TENANT_LABELS..] {
            let conn = broker.open(*tenant).unwrap();
            let topic = broker.topic(*tenant, "a").unwrap();
            assert!(matches!(broker.publish(conn, topic, message("abc")), Verdict::Queued(_)));
        }
        let text = exposition(&broker, &tenants, Process::default());
        let others = "sluicegate_tenant_bytes_total{tenant=\"others\",column=\"admitted\"} 6";
        assert!(lines(&text).contains(&others), "{text}");
        assert!(!text.contains("tenant=\"100\""));
        let exact = exposition(&broker, &tenants[..MAX_TENANT_LABELS], Process::default());
        assert!(!exact.contains(OTHERS), "just as many tenants as labels");
    }
}
