//! Every workload over every peer, for some milliseconds: what is done is checked, never how fast.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lab::factor::Level;
use lab::peers::{Peers, TRANSPORTS};
use lab::trial::{Crew, Measured, Trial, TrialError};
use lab::workload;

const PROGRAM: &str = env!("CARGO_BIN_EXE_siga-peers");

/// Does a trial, and again with a longer window if the machine was too busy for the first. One at a time:
/// sides that spin leave no room for others.
fn run(workload: &str, transport: &str, bytes: u64, wait: &str) -> Result<Measured, TrialError> {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let peers = Peers::at(Path::new(PROGRAM)).unwrap();
    let crew = Crew::new(|| unreachable!("peers play all parts"), None).with_peers(Some(peers));
    let word = |word: &str| Level::Word(word.to_owned());
    let factors = [
        ("transport".to_owned(), word(transport)),
        ("bytes".to_owned(), Level::Number(bytes)),
        ("wait".to_owned(), word(wait)),
    ];
    let mut trial = Trial {
        workload: workload::find(workload).unwrap(),
        factors: factors.into(),
        warm_up: Duration::from_millis(2),
        window: Duration::from_millis(20),
        system: None,
        place: Default::default(),
        intervals: None,
    };
    loop {
        match crew.run(&trial) {
            Err(TrialError::Failed(why))
                if why.contains("nothing came") && trial.window < Duration::from_secs(2) =>
            {
                trial.window *= 10;
            }
            outcome => return outcome,
        }
    }
}

#[test]
fn messages_arrive_whole_over_every_peer() {
    for transport in TRANSPORTS {
        for bytes in [1, 8, 64, 1000, 1024, 1025, 32764, 65472] {
            for workload in ["message-stream", "message-exchange"] {
                let cell = format!("{workload}, {transport}, {bytes}");
                let measured = run(workload, transport, bytes, "spin");
                let Measured { metrics, counters, .. } =
                    measured.unwrap_or_else(|error| panic!("{cell}: {error}"));
                assert!(metrics["rate_messages_per_s"] > 0.0, "{cell}");
                assert!(metrics["cpu_ns_per_message"] > 0.0, "{cell}");
                let has_driver = counters.contains_key("host_media_driver_cpu_ns");
                assert_eq!(has_driver, transport != "iceoryx2", "{cell}");
            }
        }
    }
}

#[test]
fn messages_longer_than_a_frame_arrive_whole() {
    for bytes in [65473, 1_000_000, 16 << 20] {
        for transport in ["aeron", "iceoryx2"] {
            for workload in ["message-stream", "message-exchange"] {
                run(workload, transport, bytes, "spin")
                    .unwrap_or_else(|error| panic!("{workload}, {transport}, {bytes}: {error}"));
            }
        }
        let error = run("message-stream", "aeron-claim", bytes, "spin").unwrap_err();
        assert!(matches!(error, TrialError::Unable(_)));
        let why = format!("{bytes} B: a message of aeron-claim has at most 65472 B");
        assert_eq!(error.to_string(), why);
    }
}

#[test]
fn sleepers_are_woken_by_events() {
    for workload in ["message-stream", "message-exchange"] {
        run(workload, "iceoryx2", 64, "block")
            .unwrap_or_else(|error| panic!("{workload}: {error}"));
    }
}

#[test]
fn media_driver_leaves_no_files() {
    run("message-exchange", "aeron", 64, "spin").unwrap();
    let ours = format!("siga-lab-{}-", std::process::id());
    let memory = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = memory.filter(|name| name.to_string_lossy().starts_with(&ours)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn program_does_nothing_without_a_lab() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run(&[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("this is what `siga lab run` starts"), "{said}");
    assert_eq!(run(&["--help"]).0, Some(2));
    assert_eq!(run(&["--version"]), (Some(0), String::new()));
}
