//! Workers of the lab for peers of siga: Aeron and iceoryx2, each at its best setting. `README.md` says how
//! to build and run them.

mod aeron;
mod driver;
mod iceoryx2;

use std::process::ExitCode;

use lab::role::HOST;
use lab::worker::{Control, Fault, Order, Report, carry, run_with};

use crate::aeron::{AeronEnd, Claimed, Offered};
use crate::iceoryx2::Iceoryx2End;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => match run_with(play) {
            Ok(()) => ExitCode::SUCCESS,
            Err(fault) => {
                eprintln!("siga-peers: {fault}");
                ExitCode::FAILURE
            }
        },
        ["--version"] => {
            println!("{}", lab::peers::version());
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: siga-peers [--version]; `siga lab run` starts it without arguments");
            ExitCode::from(2)
        }
    }
}

fn play(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    match (order.word("transport"), &*order.role) {
        ("aeron" | "aeron-claim", HOST) => driver::attend(order, control),
        ("aeron", _) => carry(AeronEnd::<Offered>::open(order)?, order, control),
        ("aeron-claim", _) => carry(AeronEnd::<Claimed>::open(order)?, order, control),
        ("iceoryx2", _) => carry(Iceoryx2End::open(order, control)?, order, control),
        (other, _) => Err(Fault::Unable(format!("siga-peers has no transport {other}"))),
    }
}
