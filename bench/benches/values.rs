//! The time of the values that stand alone: one publish or event through each checkpoint of a
//! client.

use criterion::{Criterion, criterion_group, criterion_main};
use sluicegate_core::client::inbox::{Event, Inbox};
use sluicegate_core::client::queue::{self, Queue};
use sluicegate_core::client::window::{self, Permit, Window};
use sluicegate_core::{Limits, Policy};
use std::hint::black_box;

fn granted(window: &mut Window, cost: u64) -> Permit {
    match window.ask(cost) {
        window::Answer::Granted(permit) => permit,
        other => panic!("an empty window grants: {other:?}"),
    }
}

fn windows(c: &mut Criterion) {
    let mut group = c.benchmark_group("window");
    let mut window = Window::new(&Limits::default());
    group.bench_function("ask_and_give_back", |b| {
        b.iter(|| {
            let permit = granted(&mut window, black_box(1_024));
            window.give_back(permit);
        });
    });
    let mut window = Window::new(&Limits { publish_inflight_bytes: 1_024, ..Limits::default() });
    let mut held = Some(granted(&mut window, 1_024));
    group.bench_function("wait_and_be_granted", |b| {
        b.iter(|| {
            let waits = window.ask(black_box(1_024));
            assert!(matches!(waits, window::Answer::Waits(_)));
            window.give_back(held.take().expect("granted in the round before"));
            let (ticket, answer) = window.poll().expect("there is room for the one that waits");
            held = Some(answer.expect("the window is open"));
            ticket
        });
    });
    group.finish();
}

fn queues(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue");
    let mut queue = Queue::new(&Limits::default());
    group.bench_function("push_and_pop", |b| {
        b.iter(|| {
            let answer = queue.push(black_box([0_u64; 8]));
            assert!(matches!(answer, queue::Answer::Queued));
            queue.pop()
        });
    });
    while matches!(queue.push([0; 8]), queue::Answer::Queued) {}
    group.bench_function("push_and_pop_full", |b| {
        b.iter(|| {
            let answer = queue.push(black_box([0_u64; 8]));
            assert!(matches!(answer, queue::Answer::Waits(_)));
            queue.pop()
        });
    });
    group.finish();
}

fn inboxes(c: &mut Criterion) {
    let mut group = c.benchmark_group("inbox");
    let mut first = 0;
    let mut event = move || {
        first += 1;
        Event { first, records: 1, bytes: 1_024, value: [0_u64; 4] }
    };
    let mut inbox = Inbox::new(&Limits::default(), Policy::DropNew);
    group.bench_function("push_and_take", |b| {
        b.iter(|| {
            let answer = inbox.push(black_box(event()));
            (answer, inbox.take())
        });
    });
    for (name, policy) in [("drop_new", Policy::DropNew), ("drop_old", Policy::DropOld)] {
        let mut inbox = Inbox::new(&Limits::default(), policy);
        group.bench_function(name, |b| b.iter(|| inbox.push(black_box(event()))));
    }
    group.finish();
}

criterion_group!(benches, windows, queues, inboxes);
criterion_main!(benches);
