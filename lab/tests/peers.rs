//! Peers of siga, played by this program and by shell scripts: what comes of what they do.

mod crew;

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lab::factor::Level;
use lab::peers::{self, Peers};
use lab::role::HOST;
use lab::trial::{Crew, Measured, Trial, TrialError};
use lab::worker::{Control, Doing, End, Fault, Order, Report, attend, carry, run_with};
use lab::workload;

use crew::crew;

/// Says that this process is a worker of peers.
const WORKER: &str = "SIGA_LAB_PEERS_WORKER";

/// No test by itself: what [`Program::honest`] starts.
#[test]
fn peers_worker() {
    if std::env::var_os(WORKER).is_some() {
        run_with(play).unwrap();
    }
}

/// Plays all parts of a trial over `aeron`, and knows no other transport.
fn play(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    match (order.word("transport"), &*order.role) {
        ("aeron", HOST) => {
            fs::create_dir(place(order)).unwrap();
            let mut report = attend(control)?;
            report.counters.insert("media_driver_cpu_ns".into(), report.cpu_ns());
            Ok(report)
        }
        ("aeron", _) => carry(Stream::open(order, control)?, order, control),
        (other, _) => Err(Fault::Unable(format!("no {other} here"))),
    }
}

/// Where the host of the trial keeps its files.
fn place(order: &Order) -> &Path {
    order.socket.as_deref().unwrap()
}

/// A transport: a Unix stream that begins at the host's place.
struct Stream(UnixStream);

impl Stream {
    fn open(order: &Order, control: &mut Control) -> Result<Stream, Fault> {
        let stream = if order.is_source() {
            let path = place(order).join("stream");
            let listener = UnixListener::bind(&path).doing("listen")?;
            control.tell(path.to_str().unwrap())?;
            listener.accept().map(|(stream, _)| stream)
        } else {
            UnixStream::connect(control.note()?)
        };
        Ok(Stream(stream.doing("connect")?))
    }
}

impl End for Stream {
    fn send(&mut self, bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let mut message = vec![0; bytes];
        build(&mut message);
        self.0.write_all(&message).doing("write")
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn receive(&mut self, bytes: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        let mut message = vec![0; bytes];
        let has_come = self.0.read_exact(&mut message).is_ok();
        if has_come {
            read(0, &message);
        }
        Ok(has_come)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.0.shutdown(Shutdown::Write).doing("end the stream")
    }
}

/// A program that goes with the test.
struct Program(PathBuf);

impl Program {
    /// A shell script that begins with what siga-peers prints for `--version`.
    fn of(deed: &str) -> Program {
        let version = peers::version();
        Program::script(&format!("[ \"$1\" = --version ] && echo '{version}' && exit\n{deed}"))
    }

    /// This program.
    fn honest() -> Program {
        let this = std::env::current_exe().unwrap();
        let this = this.display();
        Program::of(&format!("{WORKER}=1 exec '{this}' peers_worker --exact --nocapture"))
    }

    fn script(text: &str) -> Program {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("siga-peers-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Written by another process: while this one has it open for writing, nobody can run it, and a
        // thread that starts a process meanwhile keeps it open.
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat > \"$0\" && chmod +x \"$0\""]).arg(&path).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        Program(path)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A test removes it earlier.
        let _ = fs::remove_file(&self.0);
    }
}

fn measure(
    workload: &str,
    transport: &str,
    peers: Option<&Program>,
) -> Result<Measured, TrialError> {
    let word = |word: &str| Level::Word(word.into());
    let mut trial = Trial {
        workload: workload::find(workload).unwrap(),
        factors: [
            ("transport".to_owned(), word(transport)),
            ("bytes".to_owned(), Level::Number(64)),
            ("wait".to_owned(), word("spin")),
        ]
        .into(),
        warm_up: Duration::from_millis(2),
        window: Duration::from_millis(50),
        system: None,
        place: Default::default(),
        intervals: None,
    };
    let peers = peers.map(|program| Peers::at(&program.0).unwrap());
    let crew = Crew { peers, ..crew() };
    loop {
        match crew.run(&trial) {
            // A machine was too busy for a window so short.
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
fn peers_that_are_not_built_are_said_to_be_with_the_cure() {
    let error = measure("message-stream", "iceoryx2", None).unwrap_err();
    assert!(matches!(error, TrialError::Unable(_)));
    let start =
        "Aeron and iceoryx2 are not measured, siga-peers is not built: cargo build --release ";
    assert!(error.to_string().starts_with(start), "{error}");
    assert_eq!(Peers::find().unwrap_err().to_string(), error.to_string());
}

#[test]
fn messages_go_over_transports_of_another_program() {
    let program = Program::honest();
    for workload in ["message-stream", "message-exchange"] {
        let Measured { metrics, counters, .. } =
            measure(workload, "aeron", Some(&program)).unwrap();
        assert!(metrics["rate_messages_per_s"] > 0.0);
        assert!(counters.contains_key("host_media_driver_cpu_ns"), "{counters:?}");
    }
    let error = measure("message-stream", "iceoryx2", Some(&program)).unwrap_err();
    assert!(matches!(&error, TrialError::Unable(why) if why == "no iceoryx2 here"), "{error}");
}

#[test]
fn program_of_another_lab_is_refused() {
    let refused = |program: &Program| {
        let error = Peers::at(&program.0).unwrap_err().to_string();
        error.replace(&program.0.display().to_string(), "PROGRAM")
    };
    let start = "Aeron and iceoryx2 are not measured, PROGRAM does not belong to this siga: ";
    let why =
        |why: &str| format!("{start}--version should print {:?}, not {why}", peers::version());
    let old = Program::script("echo siga-peers 0.0.1 of lab 5");
    let said = "\"siga-peers 0.0.1 of lab 5\" (exit status: 0); build both again";
    assert_eq!(refused(&old), why(said));
    let other = Program::script("exit 3");
    assert_eq!(refused(&other), why("\"\" (exit status: 3); build both again"));
    let missing = Program("/nonexistent/siga-peers".into());
    assert_eq!(refused(&missing), format!("{start}No such file or directory (os error 2)"));
}

#[test]
fn program_that_dies_or_talks_nonsense_ends_the_trial_with_the_reason() {
    let failed = |deed: &str, transport: &str| {
        let program = Program::of(deed);
        match measure("message-stream", transport, Some(&program)) {
            Err(TrialError::Failed(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    let died = failed("echo 'out of luck' >&2; exit 3", "aeron");
    assert_eq!(died, "host died, exit status: 3: out of luck");
    let died = failed("kill -9 $$", "iceoryx2");
    assert!(died.ends_with(" died, signal: 9 (SIGKILL)"), "{died}");
}

#[test]
fn program_that_is_gone_by_now_ends_the_trial_with_the_reason() {
    let program = Program::of("exit");
    let crew = Crew { peers: Some(Peers::at(&program.0).unwrap()), ..crew() };
    fs::remove_file(&program.0).unwrap();
    let trial = Trial {
        workload: workload::find("message-stream").unwrap(),
        factors: [("transport".to_owned(), Level::Word("iceoryx2".into()))].into(),
        warm_up: Duration::ZERO,
        window: Duration::from_millis(20),
        system: None,
        place: Default::default(),
        intervals: None,
    };
    let error = crew.run(&trial).unwrap_err().to_string();
    let start = format!("cannot start a worker, {}: No such file", program.0.display());
    assert!(error.starts_with(&start), "{error}");
}
