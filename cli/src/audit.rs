//! `siga audit`: each buffer of a path.

use std::collections::BTreeMap;

use host::report::{Buffer, BufferOwner, QueueAudit};
use siga::host::Observer;

use crate::outcome::Outcome;
use crate::output::{Output, print, print_json, table};
use crate::socket::Socket;

/// Show each buffer of a path: its owner, its state, and how often it has changed hands
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The number of the path, as siga query shows it
    #[arg(value_parser = number)]
    path: u64,
    /// Show only buffers that the reader has not given back
    #[arg(long, conflicts_with = "json")]
    out: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

fn number(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "must be the number of a path: siga query path lists them")
}

/// Shows the buffers of a path.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let observer = Observer::attach(arguments.socket.path()?).map_err(Outcome::no)?;
    let report = observer.audit(arguments.path).map_err(Outcome::no)?;
    if arguments.output.json {
        return print_json(&report);
    }
    for queue in &report.queues {
        let QueueAudit { queue: number, writer, reader, .. } = queue;
        print(format!("queue {number} from {writer} to {reader}: {}", sum(queue)))?;
        let mut table = table(&["buffer", "owner", "state", "primed", "given back"], 3);
        let mut rows = 0;
        for (index, buffer) in queue.buffers.iter().enumerate() {
            if !arguments.out || buffer.owner == BufferOwner::Reader {
                rows += 1;
                let Buffer { owner, state, primed, given_back, .. } = buffer;
                table.add_row([
                    index.to_string(),
                    owner.to_string(),
                    state.to_string(),
                    primed.to_string(),
                    given_back.to_string(),
                ]);
            }
        }
        if rows > 0 {
            print(table)?;
        }
    }
    Ok(())
}

/// How many buffers are in which state, and with whom.
fn sum(queue: &QueueAudit) -> String {
    let mut counts = BTreeMap::new();
    for buffer in &queue.buffers {
        *counts.entry(format!("{} with the {}", buffer.state, buffer.owner)).or_insert(0) += 1;
    }
    counts.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}
