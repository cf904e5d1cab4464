//! `siga tn3270 serve`: a server of terminals, over whatever TCP the program has.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use os::signals::HeldSignals;
use serde::Serialize;
use terminal::transaction::{ANSWER_BYTES_MAX, ANSWER_BYTES_MIN, SessionOptions};

use super::desk::{Counted, Desk, Limits, NAMES};
use crate::outcome::Outcome;
use crate::output::{self, Output, print_json, say};

/// Sessions at once unless an option says otherwise.
const SESSIONS_MAX: u64 = 1000;

/// Serve terminals: each gets a screen that asks for an account, and answers
///
/// Terminals are those of TN3270E (RFC 2355), such as Debian's c3270 and s3270, and older ones that have no TN3270E. ENTER asks, PF3 or CLEAR ends the session. The entries
/// of an account follow from its number. The server listens with the TCP of its network: under `siga run` that is a LAN, an adapter or a line. One thread serves all
/// sessions. A client that breaks a rule, or says nothing for too long, loses its session and the reason is reported. Runs until Ctrl-C.
///
/// For example: siga run --name desk -- siga tn3270 serve --listen 0.0.0.0:23, and in a second terminal: siga run -- c3270 desk
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// The address and port to listen at, like 127.0.0.1:3270; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: SocketAddr,
    /// Sessions that may be open at once; more are refused
    #[arg(long, value_name = "NUMBER", default_value_t = SESSIONS_MAX, value_parser = clap::value_parser!(u64).range(1..=NAMES as u64))]
    sessions: u64,
    /// Sessions of one client address; of IPv6, of one /64 network [default: half of all]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=NAMES as u64))]
    sessions_per_address: Option<u64>,
    /// End a session in which no key was pressed for this time
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    idle: u64,
    /// End a connection that is no terminal after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    negotiation: u64,
    /// Bytes of the screen that answers
    #[arg(long, value_name = "BYTES", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(ANSWER_BYTES_MIN as u64..=ANSWER_BYTES_MAX as u64))]
    answer_bytes: u64,
    #[command(flatten)]
    output: Output,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "must be an address and a port, like 127.0.0.1:3270 or [::1]:3270".to_owned())
}

/// The server, as `--json` prints it at the beginning.
#[derive(Debug, Serialize)]
struct Listening {
    listening: SocketAddr,
}

pub fn serve(arguments: &Serve) -> Result<(), Outcome> {
    let held = HeldSignals::hold().map_err(Outcome::no)?;
    let at = arguments.listen;
    let listener = TcpListener::bind(at)
        .map_err(|error| Outcome::No(format!("cannot listen at {at}: {error}")))?;
    let listening = listener.local_addr().map_err(Outcome::no)?;
    let ns = |seconds| Duration::from_secs(seconds).as_nanos() as u64;
    let options = SessionOptions {
        answer_bytes: arguments.answer_bytes as usize,
        negotiation_ns: ns(arguments.negotiation),
        silence_ns: ns(arguments.idle),
    };
    let sessions_max = arguments.sessions as usize;
    let half = sessions_max.div_ceil(2);
    let per_address = arguments.sessions_per_address.map_or(half, |number| number as usize);
    let limits = Limits { sessions_max, sessions_per_address_max: per_address };
    let mut desk = Desk::new(listener, limits, options, &held).map_err(Outcome::no)?;
    if arguments.output.json {
        // A pipe that nobody reads is no reason to end.
        let _ = print_json(&Listening { listening });
    } else {
        say(format_args!("siga: terminals are served at {listening}"));
    }
    desk.serve(&held).map_err(Outcome::no)?;
    let counted = desk.counted();
    if arguments.output.json {
        let _ = print_json(&counted);
    } else {
        let Counted { sessions, transactions, violations, timeouts, refused, .. } = counted;
        let of = |count: u64, what: &str| output::counted(count as usize, what);
        say(format_args!(
            "siga: {} and {}; ended by a violation: {violations}, by silence: {timeouts}; {} refused",
            of(sessions, "session"),
            of(transactions, "transaction"),
            of(refused, "connection")
        ));
    }
    Ok(())
}
