//! Guests, paths and waiters over a host in this process.

mod common;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::joined;
use siga::error::Problem;
use siga::host::report::{BufferOwner, BufferState};
use siga::host::{Embedded, ObserveError, Observer, System};
use siga::{
    ConnectError, Guest, Path, PathOptions, Reason, SendError, Served, TrySendError, Wait, Waiter,
};

fn host() -> Embedded {
    Embedded::start(System::open()).unwrap()
}

fn guest(host: &Embedded, name: &str) -> Guest {
    Guest::attach_embedded(host, name).unwrap()
}

const POLICIES: [Wait; 3] = [Wait::Spin, Wait::Adaptive, Wait::Block];

#[test]
fn guests_talk_over_a_path() {
    let host = host();
    let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
    let options = PathOptions { data: *b"what the user is", ..PathOptions::default() };
    let (mut ours, mut theirs) = joined(&client, &server, &options);
    assert_eq!((ours.peer().as_str(), theirs.peer().as_str()), ("SERVER", "CLIENT"));
    assert_eq!(theirs.user_data(), options.data);
    ours.send(b"hello").unwrap();
    assert_eq!(theirs.receive().unwrap().body, b"hello");
    theirs.send(b"and back").unwrap();
    assert_eq!(ours.receive().unwrap().body, b"and back");
    assert!(ours.receive_within(Duration::from_millis(5)).unwrap().is_none());
    theirs.close_with([7; 16]);
    let severed = ours.receive().unwrap_err();
    assert_eq!((severed.reason, severed.data), (Reason::Peer, [7; 16]));
}

#[test]
fn path_that_was_asked_for_with_no_room_has_a_little() {
    let host = host();
    let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
    let nothing =
        PathOptions { window_bytes: 0, announced_bytes: 0, messages: 0, ..PathOptions::default() };
    let (mut ours, mut theirs) = joined(&client, &server, &nothing);
    for bytes in [10, 5000, 200_000] {
        ours.try_send(&vec![1; bytes]).unwrap();
        assert_eq!(theirs.receive().unwrap().body.len(), bytes);
    }
}

/// The server may wait for a third guest now, which waits for the client.
#[test]
fn send_does_not_wait_for_a_receiver_that_has_received_everything() {
    let host = host();
    let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
    let little = PathOptions { window_bytes: 4096, ..PathOptions::default() };
    let (mut ours, mut theirs) = joined(&client, &server, &little);
    for number in 0..1000_usize {
        ours.try_send(&[number as u8; 1000]).unwrap();
        assert_eq!(theirs.receive().unwrap().body, [number as u8; 1000]);
    }
}

#[test]
fn exchanges_work_under_every_policy() {
    let host = host();
    for policy in POLICIES {
        let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
        let options = PathOptions { wait: policy, ..PathOptions::default() };
        let (mut ours, mut theirs) = joined(&client, &server, &options);
        let echo = thread::spawn(move || {
            while let Ok(message) = theirs.receive() {
                let body = message.body.to_vec();
                theirs.send(&body).unwrap();
            }
        });
        for round in 0..300_usize {
            let body = vec![round as u8; [1, 64, 1000, 40_000, 200_000][round % 5]];
            ours.send(&body).unwrap();
            assert!(ours.receive().unwrap().body == body);
        }
        ours.close();
        echo.join().unwrap();
    }
}

#[test]
fn stream_arrives_whole_under_every_policy() {
    let host = host();
    for policy in POLICIES {
        let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
        let options = PathOptions { wait: policy, ..PathOptions::default() };
        let (mut ours, mut theirs) = joined(&client, &server, &options);
        let sink = thread::spawn(move || {
            let mut next = 0_u64;
            loop {
                match theirs.receive() {
                    Ok(message) => {
                        let number = u64::from_le_bytes(message.body[..8].try_into().unwrap());
                        assert_eq!(number, next);
                        assert!(message.body[8..].iter().all(|byte| *byte == number as u8));
                        next += 1;
                    }
                    Err(severed) => {
                        assert_eq!(severed.reason, Reason::Peer);
                        return next;
                    }
                }
            }
        });
        let sizes = [8, 16, 64, 100, 3000, 9000, 60_000, 100_000];
        for number in 0..20_000_u64 {
            let size = if number % 50 == 0 { sizes[(number / 50) as usize % 8] } else { 64 };
            let mut body = vec![number as u8; size];
            body[..8].copy_from_slice(&number.to_le_bytes());
            if number % 100 < 70 { ours.push(&body).unwrap() } else { ours.send(&body).unwrap() }
        }
        ours.close();
        assert_eq!(sink.join().unwrap(), 20_000);
    }
}

#[test]
fn connection_that_nobody_wants_is_refused_with_the_reason() {
    let host = host();
    let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
    let options = PathOptions::default();
    let refused = |result: Result<Path, ConnectError>| match result.unwrap_err() {
        ConnectError::Refused { problem, data } => (problem, data),
        other => panic!("{other}"),
    };
    assert_eq!(refused(client.connect("NOBODY", &options)).0, Problem::NotAttached);
    assert!(matches!(client.connect("no name", &options), Err(ConnectError::Name(_))));
    let connecting = client.start_connecting("SERVER", &options).unwrap();
    let pending = loop {
        if let Some(pending) = server.pending() {
            break pending;
        }
    };
    assert_eq!(pending.from.as_str(), "CLIENT");
    server.refuse(pending, [3; 16]);
    assert_eq!(refused(client.complete(connecting)), (Problem::Refused, [3; 16]));
    let hasty = PathOptions { time: Duration::from_millis(5), ..options };
    assert!(matches!(client.connect("SERVER", &hasty), Err(ConnectError::TimedOut)));
    assert!(Guest::attach_embedded(&host, "CLIENT").is_err(), "the name is taken");
}

#[test]
fn connection_that_cannot_be_accepted_does_not_wait_on() {
    let host = host();
    let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
    let connecting = client.start_connecting("SERVER", &PathOptions::default()).unwrap();
    let greedy = PathOptions { storage_bytes: u64::MAX / 2, ..PathOptions::default() };
    let failed = server.accept_with(&greedy).unwrap_err();
    let limit = Problem::StorageLimit;
    assert!(matches!(failed, ConnectError::Refused { problem, .. } if problem == limit));
    let failed = client.complete(connecting).unwrap_err();
    let refused = Problem::Refused;
    assert!(matches!(failed, ConnectError::Refused { problem, .. } if problem == refused));
}

#[test]
fn connection_taken_back_is_not_accepted() {
    let host = host();
    let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
    let options = PathOptions::default();
    drop(client.start_connecting("SERVER", &options).unwrap());
    let connecting = client.start_connecting("SERVER", &options).unwrap();
    let mut theirs = server.accept().unwrap();
    let mut ours = client.complete(connecting).unwrap();
    ours.send(b"the second").unwrap();
    assert_eq!(theirs.receive().unwrap().body, b"the second");
}

#[test]
fn paths_outlive_their_host() {
    let host = host();
    let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
    let (mut ours, mut theirs) = joined(&client, &server, &PathOptions::default());
    drop(host);
    for bytes in [10, 1000, 500_000] {
        ours.send(&vec![1; bytes]).unwrap();
        assert_eq!(theirs.receive().unwrap().body.len(), bytes);
    }
    assert!(matches!(
        client.connect("SERVER", &PathOptions::default()),
        Err(ConnectError::HostGone)
    ));
    drop(ours);
    assert_eq!(theirs.receive().unwrap_err().reason, Reason::Gone);
}

#[test]
fn nobody_waits_for_connections_from_a_host_that_does_not_come_back() {
    let host = host();
    let server = guest(&host, "SERVER");
    let waiting = thread::spawn(move || {
        let ended = [server.accept().map(drop), server.wait_for_pending(|_| true).map(drop)];
        ended.map(|ended| ended.unwrap_err().to_string())
    });
    // Whether it waits by now or comes to it later: the host in this process is gone.
    drop(host);
    assert_eq!(waiting.join().unwrap(), ["the host is gone"; 2]);
}

#[test]
fn waiter_tells_that_a_host_does_not_come_back_and_goes_on() {
    let host = host();
    let mut waiter = Waiter::new(Wait::Block).unwrap();
    let key = waiter.add(Served::Guest(guest(&host, "SERVER"))).unwrap();
    let waiting = thread::spawn(move || {
        assert_eq!(waiter.wait().unwrap().0, key);
        let Some(Served::Guest(guest)) = waiter.get_mut(key) else { panic!("the guest") };
        assert!(guest.pending().is_none() && !guest.is_attached());
        assert!(waiter.wait_within(Duration::ZERO).unwrap().is_none(), "it is told once");
    });
    drop(host);
    waiting.join().unwrap();
}

#[test]
fn halves_work_on_threads_of_their_own() {
    let host = host();
    let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
    let options = PathOptions { outputs: 2, inputs: 3, ..PathOptions::default() };
    let (ours, theirs) = joined(&client, &server, &options);
    let (senders, receivers) = ours.split();
    let (their_senders, their_receivers) = theirs.split();
    assert_eq!((senders.len(), receivers.len()), (2, 3));
    thread::scope(|scope| {
        for mut sender in senders.into_iter().chain(their_senders) {
            scope.spawn(move || {
                for number in 0..5000_u32 {
                    sender.send(&number.to_le_bytes()).unwrap();
                }
            });
        }
        for mut receiver in receivers.into_iter().chain(their_receivers) {
            scope.spawn(move || {
                for number in 0..5000_u32 {
                    assert_eq!(receiver.receive().unwrap().body, number.to_le_bytes());
                }
                assert_eq!(receiver.receive().unwrap_err().reason, Reason::Gone);
            });
        }
    });
}

/// Serves echo on any number of paths with one waiter, until as many have ended.
fn serve_echo(server: Guest, policy: Wait, paths: usize) {
    let mut waiter = Waiter::new(policy).unwrap();
    waiter.add(Served::Guest(server)).unwrap();
    let mut ended = 0;
    while ended < paths {
        let (key, member) = waiter.wait().unwrap();
        let mut joined = None;
        let mut is_over = false;
        match member {
            Served::Guest(guest) => {
                let pending = guest.pending().expect("it was ready");
                joined = Some(guest.accept_pending(pending, &PathOptions::default()).unwrap());
            }
            Served::Path(path) => loop {
                match path.try_receive() {
                    Ok(Some(message)) => {
                        let body = message.body.to_vec();
                        path.send(&body).unwrap();
                    }
                    Ok(None) => break,
                    Err(_) => {
                        is_over = true;
                        break;
                    }
                }
            },
        }
        if let Some(path) = joined {
            waiter.add(Served::Path(path)).unwrap();
        }
        if is_over {
            waiter.remove(key);
            ended += 1;
        }
    }
    assert_eq!(waiter.len(), 1);
}

#[test]
fn one_waiter_serves_many_paths() {
    for policy in POLICIES {
        let host = host();
        let server = guest(&host, "SERVER");
        let clients = 20;
        let echo = thread::spawn(move || serve_echo(server, policy, clients));
        let client = guest(&host, "CLIENT");
        let options = PathOptions { wait: Wait::Block, ..PathOptions::default() };
        let mut paths: Vec<Path> =
            (0..clients).map(|_| client.connect("SERVER", &options).unwrap()).collect();
        for round in 0..20_u8 {
            for (number, path) in paths.iter_mut().enumerate() {
                path.send(&vec![round ^ number as u8; 1 + number * 500]).unwrap();
                path.flush();
            }
            for (number, path) in paths.iter_mut().enumerate() {
                let message = path.receive().unwrap();
                assert!(message.body == vec![round ^ number as u8; 1 + number * 500]);
            }
        }
        drop(paths);
        echo.join().unwrap();
    }
}

#[test]
fn refused_sender_becomes_ready_in_a_waiter_when_there_is_room() {
    let host = host();
    let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
    let (mut ours, mut theirs) = joined(&client, &server, &PathOptions::default());
    let mut sent = 0;
    while ours.try_send(&[9; 5000]).is_ok() {
        sent += 1;
    }
    assert_eq!(ours.try_send(&[9; 5000]), Err(TrySendError::Full));
    let mut waiter = Waiter::new(Wait::Block).unwrap();
    let key = waiter.add(ours).unwrap();
    assert!(waiter.wait_within(Duration::from_millis(5)).unwrap().is_none());
    let reader = thread::spawn(move || {
        for _ in 0..=sent {
            assert_eq!(theirs.receive().unwrap().body, [9; 5000]);
        }
    });
    // Ready is worth another try: what came back may not have been enough.
    loop {
        assert_eq!(waiter.wait().unwrap().0, key);
        match waiter.get_mut(key).unwrap().try_send(&[9; 5000]) {
            Err(TrySendError::Full) => {}
            sent => break sent.unwrap(),
        }
    }
    reader.join().unwrap();
}

#[test]
fn peer_asleep_over_the_other_direction_still_falls_quiet() {
    let host = host();
    let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
    let options = PathOptions { wait: Wait::Block, ..PathOptions::default() };
    let (mut ours, mut theirs) = joined(&client, &server, &options);
    let peer = thread::spawn(move || {
        for _ in 0..10 {
            theirs.send(b"before").unwrap();
        }
        assert_eq!(theirs.receive().unwrap().body, b"go on");
        theirs.send(b"after").unwrap();
        theirs.flush();
        assert_eq!(theirs.receive().unwrap().body, b"done");
    });
    for _ in 0..10 {
        assert_eq!(ours.receive().unwrap().body, b"before");
    }
    ours.quiesce();
    let mut received = 10;
    let point = loop {
        while ours.try_receive().unwrap().is_some() {
            received += 1;
        }
        if let Some(point) = ours.known_point() {
            break point;
        }
        thread::yield_now();
    };
    assert_eq!(point, received);
    ours.resume();
    ours.send(b"go on").unwrap();
    ours.flush();
    while ours.receive().unwrap().body != b"after" {}
    ours.send(b"done").unwrap();
    ours.flush();
    peer.join().unwrap();
}

#[test]
fn sender_that_was_quiesced_waits_for_the_end_of_it() {
    let host = host();
    let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
    for policy in POLICIES {
        let options = PathOptions { wait: policy, ..PathOptions::default() };
        let (mut ours, mut theirs) = joined(&client, &server, &options);
        let quiesce = |path: &mut Path, sender: &mut Path| {
            path.quiesce();
            while sender.try_send(b"too late") != Err(SendError::Quiesced.into()) {}
        };
        quiesce(&mut theirs, &mut ours);
        // By itself.
        thread::scope(|scope| {
            scope.spawn(|| {
                ours.sender().wait();
                ours.send(b"after").unwrap();
            });
            theirs.resume();
            while theirs.receive().unwrap().body != b"after" {}
        });
        // And in a waiter.
        quiesce(&mut theirs, &mut ours);
        let mut waiter = Waiter::new(policy).unwrap();
        let key = waiter.add(ours).unwrap();
        assert!(waiter.wait_within(Duration::from_millis(5)).unwrap().is_none());
        theirs.resume();
        assert_eq!(waiter.wait().unwrap().0, key);
        waiter.get_mut(key).unwrap().send(b"after").unwrap();
        while theirs.receive().unwrap().body != b"after" {}
    }
}

#[test]
fn waiter_says_when_a_path_is_resumed_whichever_verb_met_the_quiesce() {
    let host = host();
    let guest = guest(&host, "ALONE");
    let verbs: [fn(&mut Path) -> bool; 4] = [
        |path| path.send(b"too late") == Err(SendError::Quiesced),
        |path| path.push(b"too late") == Err(SendError::Quiesced),
        |path| path.send_within(b"too late", Duration::ZERO) == Err(SendError::Quiesced.into()),
        |path| path.sender().claim(&[], 8).is_err(),
    ];
    for verb in verbs {
        let (mut ours, mut theirs) = joined(&guest, &guest, &PathOptions::default());
        theirs.quiesce();
        assert!(verb(&mut ours));
        let mut waiter = Waiter::new(Wait::Block).unwrap();
        let key = waiter.add(ours).unwrap();
        assert!(waiter.wait_within(Duration::ZERO).unwrap().is_none());
        theirs.resume();
        assert_eq!(waiter.try_next().unwrap().expect("it may send again").0, key);
    }
}

#[test]
fn observer_sees_guests_paths_and_buffers() {
    let socket = std::env::temp_dir().join(format!("siga-observer-{}", std::process::id()));
    let mut system = System::open();
    system.socket = Some(socket.clone());
    let host = Embedded::start(system).unwrap();
    let (client, server) =
        (Guest::attach(&socket, "CLIENT").unwrap(), Guest::attach(&socket, "SERVER").unwrap());
    let (mut ours, mut theirs) = joined(&client, &server, &PathOptions::default());
    let observer = Observer::attach(&socket).unwrap();
    for _ in 0..3 {
        ours.send(&[1; 100]).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(theirs.receive().unwrap().body, [1; 100]);
    }
    // The buffers go back now, all at once.
    assert!(theirs.try_receive().unwrap().is_none());
    ours.send(&[1; 100]).unwrap();
    let report = observer.query().unwrap();
    let names: Vec<&str> = report.guests.iter().map(|guest| guest.name.as_str()).collect();
    assert_eq!(names, ["CLIENT", "SERVER"]);
    assert_eq!(report.guests[0].process, Some(std::process::id()));
    let path = &report.paths[0];
    assert_eq!(path.path, ours.number());
    assert_eq!(path.sides[0].outputs[0].counts["messages"], 4);
    assert_eq!(path.sides[1].inputs[0].counts["messages"], 3);

    let audit = observer.audit(ours.number()).unwrap();
    assert_eq!(audit.queues.len(), 2);
    let buffers = &audit.queues[0].buffers;
    assert_eq!((audit.queues[0].writer.as_str(), buffers.len()), ("CLIENT", 256));
    let states: Vec<_> =
        buffers[..5].iter().map(|b| (b.owner, b.state, b.primed, b.given_back)).collect();
    let read = (BufferOwner::Writer, BufferState::Empty, 1, 1);
    let primed = (BufferOwner::Reader, BufferState::Primed, 1, 0);
    let unused = (BufferOwner::Writer, BufferState::NotInitialised, 0, 0);
    assert_eq!(states, [read, read, read, primed, unused]);
    assert!(matches!(observer.audit(999), Err(ObserveError::Refused(Problem::NoPath))));

    drop((ours, theirs));
    drop((client, server));
    while !observer.query().unwrap().guests.is_empty() {}
    drop(host);
    assert!(observer.query().is_err());
    assert!(!socket.exists(), "a host that ends in good order leaves nothing");
}

/// Whoever gets a member from its waiter does what he likes with it: it waits for what it wants then.
#[test]
fn member_of_a_waiter_waits_for_what_was_done_with_it() {
    let host = host();
    let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
    let options = PathOptions { wait: Wait::Block, ..PathOptions::DEFAULT };
    let (ours, mut theirs) = joined(&client, &server, &options);
    let mut waiter = Waiter::new(Wait::Block).unwrap();
    let member = waiter.add(ours).unwrap();
    assert!(waiter.prepare_wait());
    let path = waiter.get_mut(member).unwrap();
    let mut sent = 0;
    while path.try_send(&[9; 5000]).is_ok() {
        sent += 1;
    }
    assert!(waiter.prepare_wait(), "there is no room");
    for _ in 0..sent {
        theirs.receive().unwrap();
    }
    assert_eq!(theirs.try_receive().unwrap(), None, "room is given back");
    assert_eq!(
        waiter.wait_within(Duration::from_secs(60)).unwrap().map(|found| found.0),
        Some(member)
    );

    waiter.get_mut(member).unwrap().try_send(b"the last").unwrap();
    assert!(waiter.prepare_wait());
    let (told, tell) = mpsc::channel();
    let peer = thread::spawn(move || {
        while theirs.receive().unwrap().body != b"question" {}
        theirs.send(b"answer").unwrap();
        tell.recv().unwrap();
        theirs.send(b"later").unwrap();
        theirs
    });
    let path = waiter.get_mut(member).unwrap();
    path.send(b"question").unwrap();
    assert_eq!(path.receive().unwrap().body, b"answer");
    told.send(()).unwrap();
    assert_eq!(
        waiter.wait_within(Duration::from_secs(60)).unwrap().map(|found| found.0),
        Some(member)
    );
    peer.join().unwrap();
}

#[test]
fn send_with_a_limit_ends_at_it_and_sends_nothing_then() {
    let host = Embedded::start(System::open()).unwrap();
    let guest = Guest::attach_embedded(&host, "ALONE").unwrap();
    let (mut ours, mut theirs) = joined(&guest, &guest, &PathOptions::default());
    let time = Duration::from_millis(5);
    let mut sent = 0;
    while ours.send_within(&[9; 5000], time).is_ok() {
        sent += 1;
    }
    assert_eq!(ours.send_within(&[9; 5000], time), Err(TrySendError::Full));
    ours.end_sending();
    for _ in 0..sent {
        assert_eq!(theirs.receive().unwrap().body, [9; 5000]);
    }
    assert_eq!(theirs.receive().unwrap_err().reason, Reason::Peer);
}

#[test]
fn head_that_is_too_long_is_an_error() {
    let host = Embedded::start(System::open()).unwrap();
    let guest = Guest::attach_embedded(&host, "ALONE").unwrap();
    let (mut ours, _theirs) = joined(&guest, &guest, &PathOptions::default());
    let head = [0; siga::in_place::HEAD_BYTES_MAX + 1];
    let too_long = SendError::HeadTooLong { most: siga::in_place::HEAD_BYTES_MAX };
    assert_eq!(ours.sender().send_with_head(&head, b"x"), Err(too_long));
    assert_eq!(ours.sender().claim(&head, 8).unwrap_err(), too_long);
}

#[test]
fn waiter_says_when_there_is_room_after_a_limit_and_not_after_a_send() {
    let host = Embedded::start(System::open()).unwrap();
    let guest = Guest::attach_embedded(&host, "ALONE").unwrap();
    let (mut ours, mut theirs) = joined(&guest, &guest, &PathOptions::default());
    while ours.try_send(&[9; 5000]).is_ok() {}
    assert_eq!(ours.send_within(&[9; 5000], Duration::ZERO), Err(TrySendError::Full));
    let mut waiter = Waiter::new(Wait::Block).unwrap();
    let key = waiter.add(ours).unwrap();
    assert!(waiter.wait_within(Duration::ZERO).unwrap().is_none());
    while theirs.try_receive().unwrap().is_some() {}
    let (found, ours) = waiter.wait().unwrap();
    assert_eq!(found, key);
    ours.send(&[9; 5000]).unwrap();
    assert!(waiter.wait_within(Duration::ZERO).unwrap().is_none(), "nothing is wanted any more");
}

#[test]
fn wait_without_time_finds_what_has_rung() {
    for wait in [Wait::Block, Wait::Spin] {
        let host = host();
        let (client, server) = (guest(&host, "CLIENT"), guest(&host, "SERVER"));
        let (one, mut other) = joined(&client, &server, &PathOptions::default());
        let mut waiter = Waiter::new(wait).unwrap();
        let key = waiter.add(one).unwrap();
        // So busy that it seldom reads the clock.
        for _ in 0..1000 {
            other.send(b"x").unwrap();
            let (_, path) = waiter.wait().unwrap();
            path.receive().unwrap();
        }
        for _ in 0..100 {
            assert!(waiter.wait_within(Duration::ZERO).unwrap().is_none());
            other.send(b"x").unwrap();
            let found = waiter.wait_within(Duration::ZERO).unwrap().map(|(key, _)| key);
            assert_eq!(found, Some(key), "{wait:?}");
            waiter.get_mut(key).unwrap().receive().unwrap();
        }
    }
}
