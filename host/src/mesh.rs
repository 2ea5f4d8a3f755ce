//! The ways between the threads of a process: one bounded ring per ordered pair, first in, first
//! out, and a bell per thread.
//!
//! Nothing is shared but the rings and the bells. A sender whose ring is full keeps what it has and
//! is woken when there is room; a receiver that sleeps is woken when something arrives; a bell that
//! has been rung is not rung again before its thread has heard it, so that a busy process makes no
//! calls of the kernel here.

use rtrb::{Consumer, Producer, RingBuffer};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Wakes a thread that waits for events, or makes its next wait end at once.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// What one thread has of the mesh: the ends of its rings, and all bells.
pub struct Port<T> {
    number: u32,
    /// By destination; none to itself.
    ways_out: Vec<Option<WayOut<T>>>,
    /// By source; none from itself.
    ways_in: Vec<Option<WayIn<T>>>,
    bells: Bells,
}

/// The bells of all threads, for who has something to say that is in no ring.
#[derive(Clone)]
pub struct Bells(Arc<[Bell]>);

struct Bell {
    /// Whoever has something for the thread need not wake it: it is awake, or was woken.
    rung: AtomicBool,
    wake: Wake,
}

struct WayOut<T> {
    ring: Producer<T>,
    /// The receiver rings when it has made room.
    waits: Arc<AtomicBool>,
    /// The ring was full when there may have been more.
    was_full: bool,
}

struct WayIn<T> {
    ring: Consumer<T>,
    waits: Arc<AtomicBool>,
}

impl<T> fmt::Debug for Port<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("number", &self.number).finish_non_exhaustive()
    }
}

impl fmt::Debug for Bells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bells").field("threads", &self.0.len()).finish()
    }
}

/// The ports of as many threads as there are `wakes`, by number, with rings of `room` slots.
///
/// # Panics
/// When `room` is 0, or there are more than 2^32 threads.
pub fn ports<T>(wakes: Vec<Wake>, room: usize) -> Vec<Port<T>> {
    assert!(room > 0, "a ring without room carries nothing");
    let all = wakes.len();
    let bells = wakes.into_iter().map(|wake| Bell { rung: AtomicBool::new(true), wake });
    let bells = Bells(bells.collect());
    let mut ports: Vec<Port<T>> = (0..all)
        .map(|number| Port {
            number: u32::try_from(number).expect("few threads"),
            ways_out: (0..all).map(|_| None).collect(),
            ways_in: (0..all).map(|_| None).collect(),
            bells: bells.clone(),
        })
        .collect();
    for (from, to) in (0..all).flat_map(|from| (0..all).map(move |to| (from, to))) {
        if from == to {
            continue;
        }
        let (producer, consumer) = RingBuffer::new(room);
        let waits = Arc::new(AtomicBool::new(false));
        let way = WayOut { ring: producer, waits: Arc::clone(&waits), was_full: false };
        ports[from].ways_out[to] = Some(way);
        ports[to].ways_in[from] = Some(WayIn { ring: consumer, waits });
    }
    ports
}

impl Bells {
    /// Wakes a thread unless it has been woken, or is awake and will look before it sleeps. What it
    /// is to find must have been put there before.
    fn ring(&self, number: u32) {
        let bell = &self.0[number as usize];
        if !bell.rung.swap(true, Ordering::AcqRel) {
            (bell.wake)();
        }
    }

    /// Makes the next wait of every thread end at once: for news that is in no ring, such as the
    /// end of the process. Cost: a call of the kernel per thread.
    pub fn ring_all(&self) {
        self.0.iter().for_each(|bell| (bell.wake)());
    }

    /// The same, but for one thread, which has the news.
    pub fn ring_others(&self, number: u32) {
        let others = (0..).zip(self.0.iter()).filter(|(other, _)| *other != number);
        others.for_each(|(_, bell)| (bell.wake)());
    }
}

impl<T> Port<T> {
    /// This thread's number.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The numbers of the other threads.
    pub fn others(&self) -> impl Iterator<Item = u32> + use<T> {
        let (own, all) = (self.number, u32::try_from(self.ways_out.len()).expect("few threads"));
        (0..all).filter(move |number| *number != own)
    }

    /// All bells.
    pub const fn bells(&self) -> &Bells {
        &self.bells
    }

    /// Sends what `next` gives, until it has nothing more or the ring is full; in that case this
    /// thread is woken when there is room. `next` is asked only while there is room. The receiver
    /// is woken once. Cost: O(what is sent).
    ///
    /// # Panics
    /// When `to` is this thread, or none.
    pub fn send(&mut self, to: u32, mut next: impl FnMut() -> Option<T>) {
        let way = self.ways_out[to as usize].as_mut().expect("another thread");
        let mut sent = false;
        way.was_full = loop {
            if way.is_full() {
                break true;
            }
            let Some(letter) = next() else { break false };
            assert!(way.ring.push(letter).is_ok(), "there was room, and only we fill it");
            sent = true;
        };
        if sent {
            self.bells.ring(to);
        }
    }

    /// What has come from a thread, oldest first: at most what is there now, so that who is fast
    /// keeps nobody busy for ever. Cost: O(1) each.
    ///
    /// # Panics
    /// When `from` is this thread, or none.
    pub fn receive(&mut self, from: u32) -> Arrived<'_, T> {
        let way = self.ways_in[from as usize].as_mut().expect("another thread");
        let left = way.ring.slots();
        Arrived { way, from, bells: &self.bells, left, taken: false }
    }

    /// Whether something has come that was not taken. Cost: O(threads).
    pub fn has_arrived(&self) -> bool {
        self.ways_in.iter().flatten().any(|way| !way.ring.is_empty())
    }

    /// Whether a ring was full when there may have been more to send. Cost: O(threads).
    pub fn is_waiting(&self) -> bool {
        self.ways_out.iter().flatten().any(|way| way.was_full)
    }

    /// About to wait for events: from here on who sends wakes this thread. False when there is room
    /// again in a ring that was full, or, if `wants` letters, when one is there: then it must not
    /// wait. Who does not want what is there must have something else to wake it. Each call is
    /// followed by [`wake_up`](Self::wake_up) after the wait, if there was one.
    /// Cost: O(threads).
    pub fn may_sleep(&mut self, wants: bool) -> bool {
        // With the swap of whoever rings: either it sees this and wakes us, or we see what it did.
        self.bells.0[self.number as usize].rung.swap(false, Ordering::AcqRel);
        let arrived = wants && self.has_arrived();
        let room = self.ways_out.iter().flatten().any(|way| way.was_full && !way.ring.is_full());
        if arrived || room {
            self.wake_up();
        }
        !arrived && !room
    }

    /// The wait is over: nobody needs to wake this thread.
    pub fn wake_up(&self) {
        self.bells.0[self.number as usize].rung.swap(true, Ordering::AcqRel);
    }
}

impl<T> WayOut<T> {
    /// Whether there is no room; then the receiver has been told to ring when there is.
    fn is_full(&self) -> bool {
        if !self.ring.is_full() {
            return false;
        }
        self.waits.store(true, Ordering::Relaxed);
        // With the fence of who takes: either it sees that we wait, or we see the room it made.
        fence(Ordering::SeqCst);
        self.ring.is_full()
    }
}

/// Letters that have come from one thread.
pub struct Arrived<'a, T> {
    way: &'a mut WayIn<T>,
    from: u32,
    bells: &'a Bells,
    left: usize,
    taken: bool,
}

impl<T> fmt::Debug for Arrived<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrived").field("from", &self.from).finish_non_exhaustive()
    }
}

impl<T> Iterator for Arrived<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        let letter = self.way.ring.pop().ok()?;
        self.taken = true;
        Some(letter)
    }
}

impl<T> Drop for Arrived<'_, T> {
    /// Wakes the sender if it waits for room and there is some now.
    fn drop(&mut self) {
        if !self.taken {
            return;
        }
        fence(Ordering::SeqCst);
        if self.way.waits.load(Ordering::Relaxed) && self.way.waits.swap(false, Ordering::Relaxed) {
            self.bells.ring(self.from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::sync::{Condvar, Mutex};
    use std::thread;

    /// Ports of threads that count how often they are woken.
    fn counted(threads: usize, room: usize) -> (Vec<Port<u32>>, Vec<Arc<AtomicU32>>) {
        let counts: Vec<_> = (0..threads).map(|_| Arc::new(AtomicU32::new(0))).collect();
        let wakes = counts.iter().cloned().map(|count| {
            let wake: Wake = Box::new(move || _ = count.fetch_add(1, Ordering::SeqCst));
            wake
        });
        (ports(wakes.collect(), room), counts)
    }

    fn send(port: &mut Port<u32>, to: u32, letters: &[u32]) -> usize {
        let mut letters = letters.iter().copied();
        port.send(to, || letters.next());
        letters.len()
    }

    fn take(port: &mut Port<u32>, from: u32) -> Vec<u32> {
        port.receive(from).collect()
    }

    #[test]
    fn letters_come_in_order_and_a_full_ring_leaves_the_rest_with_the_sender() {
        let (mut ports, _) = counted(3, 4);
        assert_eq!(send(&mut ports[0], 2, &[1, 2, 3]), 0);
        assert_eq!(send(&mut ports[1], 2, &[7]), 0);
        assert_eq!(send(&mut ports[0], 2, &[4, 5, 6]), 2, "one of them fits");
        assert_eq!(take(&mut ports[2], 0), [1, 2, 3, 4]);
        assert_eq!(take(&mut ports[2], 1), [7]);
        assert!(!ports[2].has_arrived());
        assert_eq!(ports[1].others().collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn who_sleeps_is_woken_once_and_who_is_awake_is_not() {
        let (mut ports, counts) = counted(2, 4);
        send(&mut ports[0], 1, &[1]);
        assert_eq!(counts[1].load(Ordering::SeqCst), 0, "it is awake");
        assert!(!ports[1].may_sleep(true), "it has not looked");
        assert_eq!(take(&mut ports[1], 0), [1]);
        assert!(ports[1].may_sleep(true));
        send(&mut ports[0], 1, &[2]);
        send(&mut ports[0], 1, &[3]);
        assert_eq!(counts[1].load(Ordering::SeqCst), 1);
        ports[1].wake_up();
        assert!(ports[1].may_sleep(false), "it does not want them now");
    }

    #[test]
    fn a_sender_that_found_no_room_is_woken_when_there_is_some() {
        let (mut ports, counts) = counted(2, 2);
        assert_eq!(send(&mut ports[0], 1, &[1, 2, 3]), 1);
        assert!(ports[0].is_waiting());
        assert!(ports[0].may_sleep(true), "there is no room yet");
        assert_eq!(ports[1].receive(0).next(), Some(1));
        assert_eq!(counts[0].load(Ordering::SeqCst), 1);
        assert_eq!(take(&mut ports[1], 0), [2]);
        assert_eq!(counts[0].load(Ordering::SeqCst), 1, "it was woken already");
        ports[0].wake_up();
        assert!(!ports[0].may_sleep(true), "there is room and it has not used it");
        assert_eq!(send(&mut ports[0], 1, &[3]), 0);
        assert!(!ports[0].is_waiting());
        assert!(ports[0].may_sleep(true));
    }

    /// A thread's event queue: woken or not.
    #[derive(Default)]
    struct Nap(Mutex<bool>, Condvar);

    impl Nap {
        fn wake(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }

        fn wait(&self) {
            let deadline = std::time::Duration::from_secs(60);
            let woken = self.0.lock().unwrap();
            let (mut woken, late) =
                self.1.wait_timeout_while(woken, deadline, |woken| !*woken).unwrap();
            assert!(!late.timed_out(), "a wake was lost");
            *woken = false;
        }
    }

    /// Everybody sends everybody numbers through rings that are nearly always full, and sleeps
    /// whenever it may. A wake that is lost is a thread that sleeps for ever.
    #[test]
    fn no_letter_and_no_wake_is_lost() {
        const EACH: u32 = 20_000;
        let naps: Vec<Arc<Nap>> = (0..3).map(|_| Arc::default()).collect();
        let wakes = naps.iter().cloned().map(|nap| -> Wake { Box::new(move || nap.wake()) });
        let ports = ports::<u32>(wakes.collect(), 3);
        let threads: Vec<_> = ports
            .into_iter()
            .zip(naps)
            .map(|(port, nap)| thread::spawn(move || exchange(port, &nap, EACH)))
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }

    fn exchange(mut port: Port<u32>, nap: &Nap, each: u32) {
        let others: Vec<u32> = port.others().collect();
        let (mut sent, mut got) = ([0; 3], [0; 3]);
        loop {
            for &other in &others {
                for letter in port.receive(other) {
                    assert_eq!(letter, got[other as usize], "in order, none missing");
                    got[other as usize] += 1;
                }
                let next = &mut sent[other as usize];
                port.send(other, || {
                    (*next < each).then(|| {
                        *next += 1;
                        *next - 1
                    })
                });
            }
            if others.iter().all(|other| [sent, got].map(|all| all[*other as usize]) == [each; 2]) {
                return;
            }
            if port.may_sleep(true) {
                nap.wait();
                port.wake_up();
            }
        }
    }
}
