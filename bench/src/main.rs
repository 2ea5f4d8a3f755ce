//! Repeats one operation, so that a tool that counts instructions can watch: the difference of two
//! runs, divided by the difference of their repetitions, is the cost of the operation alone.

use sluicegate_bench::Bed;

const USAGE: &str = "usage: sluicegate-bench OPERATION TIMES\n\
                     operations: delivery, burst, dead";
const AUDIENCE: u32 = 1_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [operation, times] = &words[..] else { panic!("{USAGE}") };
    let times: u64 = times.parse().expect(USAGE);
    let (mut bed, burst, room) = match operation.as_str() {
        "delivery" => (Bed::new(AUDIENCE), 1, u64::MAX),
        "burst" => (Bed::new(AUDIENCE), 50, u64::MAX),
        "dead" => (Bed::dead(AUDIENCE), 1, 0),
        _ => panic!("{USAGE}"),
    };
    for _ in 0..times {
        bed.publish(burst);
        bed.run(room);
    }
}
