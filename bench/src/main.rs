//! Repeats one operation, so that a tool that counts instructions can watch: the difference of two
//! runs, divided by the difference of their repetitions, is the cost of the operation alone.

use sluicegate_bench::operations::OPERATIONS;

const USAGE: &str = "usage: sluicegate-bench list | sluicegate-bench OPERATION TIMES";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["list"] => OPERATIONS.iter().for_each(|operation| println!("{operation}")),
        [name, times] => {
            let operation = OPERATIONS.iter().find(|operation| operation.name == name);
            let times: u64 = times.parse().expect(USAGE);
            let mut repeat = (operation.expect(USAGE).start)();
            (0..times).for_each(|_| repeat());
        }
        _ => panic!("{USAGE}"),
    }
}
