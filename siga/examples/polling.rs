//! A program with a loop of its own that looks for messages when it likes, and streams small ones.

use std::thread;

use siga::host::{Embedded, System};
use siga::{Guest, PathOptions, Wait};

const MESSAGES: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Embedded::start(System::open())?;
    let (source, sink) =
        (Guest::attach_embedded(&host, "SOURCE")?, Guest::attach_embedded(&host, "SINK")?);
    let sender = thread::spawn(move || {
        let options = PathOptions { wait: Wait::Spin, ..PathOptions::default() };
        let mut path = source.connect("SINK", &options).expect("the sink accepts");
        for number in 0..MESSAGES {
            // Pushed messages go together while the receiver is behind; the last one needs a flush.
            path.push(&number.to_le_bytes()).expect("the sink reads on");
        }
        path.flush();
        path.receive().expect("the sink answers");
    });
    let mut path = sink.accept()?;
    let (mut sum, mut received, mut other_work) = (0, 0, 0_u64);
    while received < MESSAGES {
        while let Some(message) = path.try_receive()? {
            sum += u64::from_le_bytes(message.body.try_into()?);
            received += 1;
        }
        other_work += 1;
    }
    assert_eq!(sum, MESSAGES * (MESSAGES - 1) / 2);
    println!("{received} messages, and {other_work} turns of other work");
    path.send(b"done")?;
    sender.join().expect("the sender does not panic");
    Ok(())
}
