//! Programs that talk by IUCV.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use os::poller::wait_any;
use siga::connect::{Kind, Scope};
use siga::error::{Lack, Problem};
use siga::host::{Embedded, System};
use siga::iucv::{
    Address, Audit, CallError, ControlMask, Event, GuestEvent, Interrupt, IucvGuest, IucvPath,
    Listener, MESSAGES_MAX, Mask, Options, Outgoing, PathId, ReceiveError, ReplyError, SendError,
    SeqPacket, Which,
};
use siga::{ConnectError, Guest, PathOptions, Reason, Wait, Waiter};

const OPTIONS: Options = Options { wait: Wait::Block, ..Options::DEFAULT };
const QUIET: Outgoing = Outgoing {
    target_class: 0,
    source_class: 0,
    tag: 0,
    priority: false,
    reply_bytes_max: None,
    quiet: true,
};

struct Two {
    _host: Embedded,
    client: Guest,
    server: Guest,
}

fn two() -> Two {
    let host = Embedded::start(System::open()).unwrap();
    let client = Guest::attach_embedded(&host, "CLIENT").unwrap();
    let server = Guest::attach_embedded(&host, "SERVER").unwrap();
    Two { _host: host, client, server }
}

/// Runs one side in a thread of its own.
fn talk(server: impl FnOnce(IucvPath) + Send, client: impl FnOnce(IucvPath)) {
    talk_under(OPTIONS, server, client);
}

fn talk_under(
    options: Options,
    server: impl FnOnce(IucvPath) + Send,
    client: impl FnOnce(IucvPath),
) {
    let two = two();
    thread::scope(|scope| {
        let Two { server: guest, client: near, _host } = two;
        let accepted = scope.spawn(move || server(IucvPath::accept(&guest, &options).unwrap()));
        client(IucvPath::connect(&near, "SERVER", &options).unwrap());
        accepted.join().unwrap();
    });
}

#[test]
fn questions_of_any_length_are_answered() {
    let lengths = [0, 1, 8, 64, 5000, 65_536, 1_000_000];
    talk(
        |mut path| {
            for _ in lengths {
                let (message, question) = path.next().unwrap();
                let answer: Vec<u8> = question.iter().rev().copied().collect();
                path.reply(message.id, &answer).unwrap();
            }
            let error = path.next().unwrap_err();
            assert!(matches!(error, ReceiveError::Severed(end) if end.reason == Reason::Peer));
        },
        |mut path| {
            for (class, length) in lengths.into_iter().enumerate() {
                let question: Vec<u8> = (0..length).map(|at| (at * 7 + class) as u8).collect();
                let mut answer = vec![0; length];
                let outgoing = Outgoing { source_class: 9, tag: class as u32, ..QUIET };
                let answered = path.call(&outgoing, &question, &mut answer).unwrap();
                assert_eq!((answered.bytes, answered.completion.tag), (length, class as u32));
                assert!(answer.iter().rev().eq(&question));
            }
            path.sever([0; 16]);
        },
    );
}

#[test]
fn reply_is_taken_in_parts() {
    let reply: Vec<u8> = (0..300_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
    let expected = reply.clone();
    talk(
        move |mut path| {
            for _ in 0..2 {
                let received = path.receive(Which::Any, &mut []).unwrap();
                path.reply(received.message.id, &reply).unwrap();
            }
            assert_eq!(path.receive(Which::Any, &mut []).unwrap().message.bytes, 0);
        },
        |mut path| {
            let outgoing =
                Outgoing { reply_bytes_max: Some(1 << 20), source_class: 7, ..Outgoing::default() };
            let id = path.send(&outgoing, &[]).unwrap();
            let mut came = Vec::new();
            loop {
                let mut part = [0; 70_000];
                let answered = path.answer(id, 7, &mut part).unwrap();
                came.extend_from_slice(&part[..answered.bytes]);
                assert_eq!(answered.residual, expected.len() - came.len());
                if answered.residual == 0 {
                    break;
                }
            }
            assert!(came == expected);
            // What is left can be given up.
            let id = path.send(&outgoing, &[]).unwrap();
            let answered = path.answer(id, 7, &mut []).unwrap();
            assert_eq!((answered.bytes, answered.residual), (0, 300_000));
            path.raw().discard(id);
            assert_eq!(path.raw().counts().complete, 0);
            path.send(&Outgoing::default(), &[]).unwrap();
        },
    );
}

#[test]
fn stream_waits_for_its_receiver_and_arrives_whole() {
    const MESSAGES: u64 = 20_000;
    talk(
        |mut path| {
            for number in 0..MESSAGES {
                let (_, data) = path.next().unwrap();
                assert_eq!(data, number.to_le_bytes().repeat(8));
            }
            path.sever([1; 16]);
        },
        |mut path| {
            for number in 0..MESSAGES {
                path.push(&QUIET, &number.to_le_bytes().repeat(8)).unwrap();
            }
            path.flush();
            let end = path.next().unwrap_err();
            assert!(matches!(end, ReceiveError::Severed(end) if end.data == [1; 16]));
        },
    );
}

#[test]
fn whoever_is_not_answered_learns_it() {
    talk(
        |mut path| {
            let rejected = path.pending(Which::Class(1)).unwrap();
            path.raw().reject(rejected.id).unwrap();
            let mut byte = [0];
            let received = path.receive(Which::Class(2), &mut byte).unwrap();
            let error = path.reply(received.message.id, &[0; 9]).unwrap_err();
            assert_eq!(error, ReplyError::TooLong { most: 8 });
            drop(path);
        },
        |mut path| {
            let mut answer = [0; 8];
            let one = Outgoing { target_class: 1, ..QUIET };
            let error = path.call(&one, b"no", &mut answer).unwrap_err();
            assert!(matches!(error, CallError::Incomplete(end) if end.audit == Audit::REJECTED));
            let two = Outgoing { target_class: 2, ..QUIET };
            let error = path.call(&two, b"?", &mut answer).unwrap_err();
            assert!(matches!(error, CallError::Incomplete(end) if end.audit == Audit::SEVERED));
            let error = path.send(&two, b"?").unwrap_err();
            assert!(matches!(error, SendError::Severed(end) if end.reason == Reason::Gone));
        },
    );
}

#[test]
fn message_limit_is_the_lower_of_what_both_sides_know() {
    talk(
        |mut path| {
            let (message, _) = path.next().unwrap();
            assert_eq!(message.reply_bytes_max, Some(1));
            while !matches!(path.event(), Event::Severed(_)) {}
        },
        |mut path| {
            let loud = Outgoing { reply_bytes_max: Some(1), ..QUIET };
            for _ in 0..OPTIONS.limit {
                path.send(&loud, b"x").unwrap();
            }
            let error = path.send(&loud, b"x").unwrap_err();
            assert_eq!(error, SendError::Limit { limit: OPTIONS.limit });
        },
    );
}

#[test]
fn guest_is_told_of_paths_then_priority_then_the_rest() {
    let two = two();
    let mut server = IucvGuest::declare(two.server, Wait::Block).unwrap();
    let mut client = IucvGuest::declare(two.client, Wait::Block).unwrap();
    let options = Options { data: *b"who asks is this", ..OPTIONS };
    let ours = client.connect("SERVER", &options).unwrap();
    let GuestEvent::ConnectionPending { path, from, data, .. } = server.event().unwrap() else {
        panic!("a connection")
    };
    assert_eq!((from.as_str(), data), ("CLIENT", options.data));
    server.accept(path, &OPTIONS).unwrap();
    let complete = client.event().unwrap();
    assert_eq!(complete, GuestEvent::ConnectionComplete { path: ours, data: [0; 16] });

    let sending = client.path(ours).unwrap();
    sending.send(&QUIET, b"plain").unwrap();
    sending
        .send(&Outgoing { priority: true, reply_bytes_max: Some(5), ..QUIET }, b"urgent")
        .unwrap();
    sending.raw().quiesce();
    server.set_mask(Mask(Mask::ALL.0 & !Mask::MESSAGES.0));
    let kinds: Vec<_> = (0..2).map(|_| server.event().unwrap().interrupt()).collect();
    assert_eq!(kinds, [Interrupt::PathQuiesced, Interrupt::PriorityMessagePending]);
    assert_eq!(server.try_event().unwrap(), None, "the other is masked");
    server.set_mask(Mask::ALL);
    assert_eq!(server.event().unwrap().interrupt(), Interrupt::MessagePending);

    let mut text = [0; 6];
    let receiving = server.path(path).unwrap();
    let urgent = receiving.receive(Which::Any, &mut text).unwrap();
    assert_eq!(&text, b"urgent");
    assert_eq!(receiving.send(&QUIET, b"no"), Err(SendError::Quiesced));
    receiving.reply(urgent.message.id, b"reply").unwrap();
    let event = client.event().unwrap();
    assert_eq!(event.interrupt(), Interrupt::MessageComplete, "the reply has no priority");

    server.sever(path, *b"enough is enough").unwrap();
    let GuestEvent::Path(_, siga::iucv::Event::Severed(end)) = client.event().unwrap() else {
        panic!("the end")
    };
    assert_eq!(end.data, *b"enough is enough");
    drop(server.retrieve());
}

#[test]
fn guest_that_may_not_connect_gets_the_code_that_iucv_gives() {
    let rules = "[[guest]]\nname = \"CLIENT\"\n[[guest]]\nname = \"SERVER\"\n";
    let host = Embedded::start(System::parse(&host::config::Source::of("s.toml", rules)).unwrap());
    let host = host.unwrap();
    let client = Guest::attach_embedded(&host, "CLIENT").unwrap();
    let _server = Guest::attach_embedded(&host, "SERVER").unwrap();
    let mut client = IucvGuest::declare(client, Wait::Block).unwrap();
    let path = client.connect("SERVER", &OPTIONS).unwrap();
    let GuestEvent::ConnectionSevered { path: refused, problem, .. } = client.event().unwrap()
    else {
        panic!("a refusal")
    };
    assert_eq!((refused, problem), (path, Some(Problem::NotAuthorised)));
    assert_eq!(Problem::NotAuthorised.number(), 15);
}

#[test]
fn stream_and_packets_go_as_they_do_through_sockets() {
    let two = two();
    let own = |guest: &Guest, program: &str| Address {
        guest: guest.name(),
        program: program.parse().unwrap(),
    };
    let to = own(&two.server, "ECHO");
    thread::scope(|scope| {
        let Two { server, client, _host } = two;
        scope.spawn(move || {
            let listener = Listener::bind(&server, "ECHO", &OPTIONS).unwrap();
            let (mut packets, from) = listener.accept().unwrap();
            assert_eq!(from.program.as_str(), "ASKER");
            let mut packet = [0; 100_000];
            for _ in 0..4 {
                let bytes = packets.receive(&mut packet).unwrap();
                packets.send(&packet[..bytes]).unwrap();
            }
            drop(packets);
            let (packets, _) = listener.accept().unwrap();
            let mut stream = packets.into_stream();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
            stream.flush().unwrap();
        });
        let mut packets = SeqPacket::connect(&client, to, "ASKER", &OPTIONS).unwrap();
        let mut packet = vec![0; 100_000];
        for length in [1, 7, 8, 100_000] {
            packets.send(&vec![length as u8; length]).unwrap();
            packets.flush();
            assert_eq!(packets.receive(&mut packet).unwrap(), length);
            assert_eq!(packet[..length], vec![length as u8; length]);
        }
        assert_eq!(packets.receive(&mut packet).unwrap(), 0, "the other side has ended");
        let mut stream = siga::iucv::Stream::connect(&client, to, "ASKER", &OPTIONS).unwrap();
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at >> 3) as u8).collect();
        stream.write_all(&bytes).unwrap();
        stream.shutdown().unwrap();
        let mut echo = Vec::new();
        stream.read_to_end(&mut echo).unwrap();
        assert_eq!(echo, bytes);
    });
}

/// One that speaks AF_IUCV by itself, and a program that uses sockets.
fn talk_with_a_socket(
    path: impl FnOnce(IucvPath) + Send,
    options: Options,
    socket: impl FnOnce(SeqPacket),
) {
    let two = two();
    let to = Address { guest: two.server.name(), program: "ECHO".parse().unwrap() };
    thread::scope(|scope| {
        let Two { server, client, _host } = two;
        let accepted = scope.spawn(move || path(IucvPath::accept(&server, &options).unwrap()));
        socket(SeqPacket::connect(&client, to, "ASKER", &OPTIONS).unwrap());
        accepted.join().unwrap();
    });
}

#[test]
fn stream_ends_behind_all_that_was_sent() {
    let (ended, has_ended) = mpsc::channel();
    let path = move |mut path: IucvPath| {
        // An empty packet, in either form.
        path.send_parameters(&QUIET, [0, 0, 0, 0, 0, 0, 0, 0xff]).unwrap();
        path.send(&QUIET, &[]).unwrap();
        path.send(&QUIET, &[7; 10_000]).unwrap();
        path.sever([0; 16]);
        ended.send(()).unwrap();
    };
    talk_with_a_socket(path, OPTIONS, |socket| {
        has_ended.recv().unwrap();
        let mut all = Vec::new();
        socket.into_stream().read_to_end(&mut all).unwrap();
        assert!(all == [7; 10_000], "{} bytes came", all.len());
    });
}

/// Nothing is received of that, and what is waited for would come behind it.
#[test]
fn source_of_priority_messages_without_end_costs_its_target_a_path_and_no_more() {
    talk_under(
        Options { limit: MESSAGES_MAX, ..OPTIONS },
        |mut path| {
            let end = path.receive(Which::Class(9), &mut []).unwrap_err();
            let ReceiveError::Severed(end) = end else { panic!("{end}") };
            assert_eq!(end.reason, Reason::Lacking(Lack::Memory));
        },
        |mut path| {
            let urgent = Outgoing { priority: true, ..Outgoing::default() };
            let body = vec![1; 60_000];
            let sent =
                (0..).find_map(|sent| path.send(&urgent, &body).err().map(|end| (sent, end)));
            let (sent, end) = sent.expect("it ends");
            let SendError::Severed(end) = end else { panic!("{end} after {sent}") };
            assert_eq!(end.reason, Reason::PeerLacking, "after {sent}");
            assert!(sent > (128 << 20) / body.len());
        },
    );
}

/// Its source takes a message back while a socket receives it: the next is waited for.
#[test]
fn packet_that_is_purged_while_it_is_received_is_none() {
    let path = |mut path: IucvPath| {
        let data = vec![0; 1 << 16];
        for round in 0..20_000 {
            let id = if round % 2 == 0 {
                path.send_parameters(&QUIET, [0, 0, 0, 0, 0, 0, 0, 0xff - 7])
            } else {
                path.send(&QUIET, &data[..5000 << (round % 4)])
            };
            (0..round % 300).for_each(|_| std::hint::spin_loop());
            // It may have been received.
            let _ = path.raw().purge(id.unwrap(), 0);
        }
        path.sever([0; 16]);
    };
    talk_with_a_socket(path, OPTIONS, |mut socket| {
        socket.set_wait(Wait::Spin);
        let mut packet = vec![0; 1 << 16];
        while socket.receive(&mut packet).unwrap() > 0 {}
    });
}

#[test]
fn short_packets_reach_a_side_that_takes_no_parameters() {
    let path = |mut path: IucvPath| {
        for packet in [&b"short"[..], b"", b"one that is longer"] {
            let (pending, data) = path.next().unwrap();
            assert_eq!((data, pending.parameters), (packet, false));
        }
    };
    let options = Options { parameters: false, ..OPTIONS };
    talk_with_a_socket(path, options, |mut socket| {
        for packet in [&b"short"[..], b"", b"one that is longer"] {
            assert_eq!(socket.send(packet).unwrap(), packet.len());
        }
        let error = socket.shutdown().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}");
    });
}

/// Its paths may stay as they are for long: none of them keeps the guest awake.
#[test]
fn guest_that_was_told_of_an_end_can_sleep() {
    let Two { server, client, _host } = two();
    let mut client = IucvGuest::declare(client, Wait::Block).unwrap();
    for sent in [0, 1, 3] {
        let id = client.connect("SERVER", &OPTIONS).unwrap();
        let mut path = IucvPath::accept(&server, &OPTIONS).unwrap();
        client.event().unwrap();
        for _ in 0..sent {
            path.send(&QUIET, b"unreceived").unwrap();
        }
        path.sever([1; 16]);
        let mut events = Vec::new();
        while events.len() < sent + 1 {
            events.push(client.event().unwrap().interrupt());
        }
        events.sort_unstable();
        let pending = std::iter::repeat_n(Interrupt::MessagePending, sent);
        assert!(events.into_iter().eq(std::iter::once(Interrupt::PathSevered).chain(pending)));
        assert_eq!(client.try_event().unwrap(), None);
        assert!(client.prepare_wait(), "{sent} messages");
        client.path(id).unwrap();
    }
}

/// A waiter knows nothing of what its members have to say: they say it while it looks, however it waits, and
/// it is no news for whoever waits.
#[test]
fn member_of_a_waiter_says_what_it_has_to_say() {
    for policy in [Wait::Spin, Wait::Adaptive, Wait::Block] {
        let Two { _host, client, server } = two();
        let accepting = thread::spawn(move || {
            let target = IucvPath::accept(&server, &OPTIONS).unwrap();
            (server, target)
        });
        let mut source = IucvPath::connect(&client, "SERVER", &OPTIONS).unwrap();
        let (_server, mut target) = accepting.join().unwrap();
        let mut waiter = Waiter::new(policy).unwrap();
        // Room that was given back is there to say something.
        let answered = Outgoing { reply_bytes_max: Some(1), ..QUIET };
        for _ in 0..2 {
            let id = source.raw().send(&answered, b"").unwrap();
            let asked = target.receive(Which::Any, &mut []).unwrap();
            target.reply(asked.message.id, b"!").unwrap();
            assert_eq!(source.answer(id, 0, &mut [0]).unwrap().bytes, 1);
        }
        let received = source.raw().send(&Outgoing { quiet: false, ..QUIET }, b"one").unwrap();
        let purged = source.raw().send(&answered, b"two").unwrap();
        target.receive(Which::Any, &mut [0; 3]).unwrap();
        let member = waiter.add(target).unwrap();
        source.raw().purge(purged, 0).unwrap();
        assert_eq!(waiter.wait().unwrap().0, member);
        let half = waiter.get_mut(member).unwrap().raw();
        assert_eq!(half.describe(Which::Any).unwrap_err(), ReceiveError::NotFound);
        assert!(waiter.wait_within(Duration::from_millis(1)).unwrap().is_none(), "{policy:?}");
        let (completion, ..) = source.raw().complete(Which::Any, &mut []).unwrap().unwrap();
        assert_eq!(completion.id, received);
        assert!(!source.raw().will_free(), "the target knows that it was purged");
    }
}

/// What is masked waits, and whoever is told nothing of it sleeps.
#[test]
fn guest_sleeps_while_what_has_come_is_masked() {
    let Two { server, client, _host } = two();
    let mut client = IucvGuest::declare(client, Wait::Block).unwrap();
    let id = client.connect("SERVER", &OPTIONS).unwrap();
    let mut path = IucvPath::accept(&server, &OPTIONS).unwrap();
    client.event().unwrap();
    for (mask, control_mask) in [
        (Mask(Mask::ALL.0 & !Mask::MESSAGES.0), ControlMask::ALL),
        (Mask::CONTROL, ControlMask::SEVERED),
        (Mask(0), ControlMask::ALL),
    ] {
        client.set_mask(mask);
        client.set_control_mask(control_mask);
        for _ in 0..3 {
            path.send(&QUIET, b"masked").unwrap();
        }
        assert_eq!(client.try_event().unwrap(), None);
        assert!(client.prepare_wait(), "{mask:?} {control_mask:?}");
    }
    let mut server = IucvGuest::declare(server, Wait::Block).unwrap();
    server.connect("CLIENT", &OPTIONS).unwrap();
    // It comes from the host.
    wait_any([Some(client.as_fd())], None).unwrap();
    assert_eq!(client.try_event().unwrap(), None);
    assert!(client.prepare_wait(), "a connection is masked");
    path.sever([0; 16]);
    assert_eq!(client.try_event().unwrap(), None);
    assert!(client.prepare_wait(), "the end is masked");
    client.set_mask(Mask::ALL);
    assert_eq!(client.event().unwrap().interrupt(), Interrupt::ConnectionPending);
    assert_eq!(client.event().unwrap().interrupt(), Interrupt::PathSevered);
    for _ in 0..9 {
        assert_eq!(client.event().unwrap().interrupt(), Interrupt::MessagePending);
    }
    assert_eq!(client.try_event().unwrap(), None);
    assert!(client.prepare_wait(), "all was told");
    client.path(id).unwrap();
}

/// The next event, which comes by the descriptor.
fn event_by_descriptor(guest: &mut IucvGuest) -> GuestEvent {
    loop {
        if let Some(event) = guest.try_event().unwrap() {
            return event;
        }
        if guest.prepare_wait() {
            let rang = wait_any([Some(guest.as_fd())], Some(Duration::from_secs(60))).unwrap();
            assert_eq!(rang, [true], "nothing comes");
        }
    }
}

/// Whatever is done with a path between two events, it says what it has to say and hears what comes.
#[test]
fn path_of_a_guest_is_used_between_its_events() {
    let Two { server, client, _host } = two();
    let mut client = IucvGuest::declare(client, Wait::Block).unwrap();
    let id = client.connect("SERVER", &OPTIONS).unwrap();
    let mut peer = IucvPath::accept(&server, &OPTIONS).unwrap();
    client.event().unwrap();
    let sent = peer.send(&Outgoing::default(), b"received late").unwrap();
    assert_eq!(event_by_descriptor(&mut client).interrupt(), Interrupt::MessagePending);
    assert_eq!(client.try_event().unwrap(), None);
    assert!(client.prepare_wait());
    client.path(id).unwrap().receive(Which::Any, &mut [0; 20]).unwrap();
    assert_eq!(client.try_event().unwrap(), None);
    assert!(client.prepare_wait());
    let (complete, ..) = peer.raw().complete(Which::Any, &mut []).unwrap().expect("was received");
    assert_eq!(complete.id, sent);

    let (told, tell) = mpsc::channel();
    let peer = thread::spawn(move || {
        let asked = peer.receive(Which::Any, &mut [0; 8]).unwrap();
        peer.reply(asked.message.id, b"!").unwrap();
        tell.recv().unwrap();
        peer.send(&Outgoing { priority: true, ..QUIET }, b"later").unwrap();
        peer
    });
    client.path(id).unwrap().call(&QUIET, b"question", &mut [0; 8]).unwrap();
    told.send(()).unwrap();
    let event = event_by_descriptor(&mut client);
    assert_eq!(event.interrupt(), Interrupt::PriorityMessagePending);
    peer.join().unwrap();
}

/// More is to be said than there is room for: it is said as room comes back, however often.
#[test]
fn member_of_a_waiter_says_the_rest_when_there_is_room() {
    let Two { server, client, _host } = two();
    let options = Options { limit: 1000, ..OPTIONS };
    let accepting = thread::spawn(move || (IucvPath::accept(&server, &options).unwrap(), server));
    let mut source = IucvPath::connect(&client, "SERVER", &options).unwrap();
    let (target, _server) = accepting.join().unwrap();
    let mut waiter = Waiter::new(Wait::Block).unwrap();
    let member = waiter.add(target).unwrap();
    // More than a queue has buffers.
    const MESSAGES: usize = 900;
    for round in 0..3 {
        let mut ids = Vec::new();
        while ids.len() < MESSAGES {
            source.raw().send(&Outgoing { reply_bytes_max: Some(1), ..QUIET }, b"").unwrap();
            let half = waiter.get_mut(member).unwrap().raw();
            ids.push(half.receive(Which::Any, &mut []).unwrap().message.id);
        }
        assert!(waiter.prepare_wait());
        let half = waiter.get_mut(member).unwrap().raw();
        ids.into_iter().for_each(|id| half.reject(id).unwrap());
        assert!(half.has_pending_controls());
        assert!(waiter.prepare_wait());
        let mut rejected = 0;
        while rejected < MESSAGES {
            let before = rejected;
            while source.raw().complete(Which::Any, &mut []).unwrap().is_some() {
                rejected += 1;
            }
            assert!(rejected > before, "no more than {rejected} in round {round}");
            if round == 1 {
                // As its user may do at any time.
                waiter.get_mut(member).unwrap().raw().flush();
            }
            let rang = waiter.wait_within(Duration::from_millis(1)).unwrap().map(|found| found.0);
            assert_eq!(rang, None, "that is no news");
        }
    }
}

/// What is told of a number is told of whom it was then.
#[test]
fn number_is_not_given_away_while_something_is_left_to_tell_of_it() {
    let Two { server, client, _host } = two();
    let mut client = IucvGuest::declare(client, Wait::Block).unwrap();
    client.connect("SERVER", &OPTIONS).unwrap();
    client.connect("NOBODY", &OPTIONS).unwrap();
    let _peer = IucvPath::accept(&server, &OPTIONS).unwrap();
    event_by_descriptor(&mut client);
    let again = client.connect("SERVER", &OPTIONS).unwrap();
    match event_by_descriptor(&mut client) {
        GuestEvent::ConnectionComplete { path, .. } => assert_ne!(path, again),
        GuestEvent::ConnectionSevered { path, .. } => assert_ne!(path, again),
        event => panic!("{event:?}"),
    }
    client.set_control_mask(ControlMask(0));
    let _second = IucvPath::accept(&server, &OPTIONS).unwrap();
    while client.path(again).is_err() {
        assert_eq!(client.try_event().unwrap(), None);
    }
    client.sever(again, [0; 16]).unwrap();
    let next = [(); 2].map(|()| client.connect("SERVER", &OPTIONS).unwrap());
    assert!(next.contains(&again));
    client.set_control_mask(ControlMask::ALL);
    assert_eq!(client.try_event().unwrap(), None, "of the one before nothing is told");
}

#[test]
fn path_that_always_has_messages_leaves_the_others_their_turn() {
    let Two { server, client, _host } = two();
    let mut client = IucvGuest::declare(client, Wait::Block).unwrap();
    let mut peers = [(); 3].map(|()| {
        let id = client.connect("SERVER", &OPTIONS).unwrap();
        let peer = IucvPath::accept(&server, &OPTIONS).unwrap();
        client.event().unwrap();
        (id, peer)
    });
    // Messages with priority come in between: each rank has its own turns.
    let urgent = Outgoing { priority: true, ..QUIET };
    for (_, peer) in &mut peers {
        peer.send(&QUIET, b"once").unwrap();
    }
    let mut told = BTreeSet::new();
    for _ in 0..peers.len() {
        peers[2].1.send(&urgent, b"again").unwrap();
        for _ in 0..2 {
            let event = event_by_descriptor(&mut client);
            let GuestEvent::Path(id, Event::Pending(pending)) = event else { panic!("{event:?}") };
            client.path(id).unwrap().receive(Which::Any, &mut [0; 5]).unwrap();
            if !pending.priority {
                told.insert(id);
                let (_, peer) = peers.iter_mut().find(|(other, _)| *other == id).unwrap();
                peer.send(&QUIET, b"again").unwrap();
            }
        }
    }
    assert_eq!(told.len(), peers.len(), "only {told:?} were told of");
}

/// Who asks for a path past his guest of IUCV looks for the answer himself.
#[test]
fn guest_sleeps_while_an_answer_is_left_to_its_user() {
    let Two { server, client, _host } = two();
    let mut client = IucvGuest::declare(client, Wait::Block).unwrap();
    let connecting = client.guest().start_connecting("SERVER", &PathOptions::DEFAULT).unwrap();
    let _path = server.accept().unwrap();
    wait_any([Some(client.as_fd())], None).unwrap();
    assert_eq!(client.try_event().unwrap(), None);
    assert!(client.prepare_wait());
    client.guest().complete(connecting).unwrap();
}

#[test]
fn end_of_a_path_is_told_to_whoever_waits_after_it() {
    talk(
        |mut path| {
            let first = path.event();
            assert!(matches!(first, Event::Severed(end) if end.data == [7; 16]), "{first:?}");
            assert_eq!(path.event(), first);
        },
        |path| path.sever([7; 16]),
    );
}

/// A partner may end one queue and not the other: there is nothing to say over it, and nothing to look at.
#[test]
fn second_queue_that_has_ended_keeps_nobody_awake() {
    let Two { server, client, _host } = two();
    let raw = PathOptions { outputs: 2, inputs: 2, kind: Kind::IUCV, ..PathOptions::DEFAULT };
    let connecting = client.start_connecting("SERVER", &raw).unwrap();
    let mut target = IucvPath::accept(&server, &OPTIONS).unwrap();
    let (mut senders, mut receivers) = client.complete(connecting).unwrap().split();
    let one_way = [0, 0, 0, 0, 1, 0, 0, 0];
    senders[0].send_with_head(&one_way, b"x").unwrap();
    receivers[1].raw().sever([0; 16]);
    target.receive(Which::Any, &mut [0]).unwrap();
    target.raw().flush();
    assert_eq!(target.raw().pending_controls(), 1);
    assert!(!target.raw().has_pending_controls());
    senders[1].raw().sever([0; 16]);
    target.raw().poll();
    assert!(!target.raw().is_urgent_ready());
}

/// Who asks and takes it back takes no number away for ever.
#[test]
fn connection_that_was_taken_back_leaves_its_number() {
    let Two { server, client, _host } = two();
    let mut client = IucvGuest::declare(client, Wait::Block).unwrap();
    client.set_control_mask(ControlMask(0));
    let options = PathOptions { outputs: 2, inputs: 2, kind: Kind::IUCV, ..PathOptions::DEFAULT };
    for _ in 0..3 {
        let connecting = server.start_connecting("CLIENT", &options).unwrap();
        // When this is answered, the client has been told.
        server.identify("PRINTER", Scope::Local).unwrap();
        assert_eq!(client.try_event().unwrap(), None);
        drop(connecting);
        server.revoke("PRINTER", Scope::Local).unwrap();
        assert_eq!(client.try_event().unwrap(), None);
    }
    // The host answers each guest over a connection of its own: what it has told the client is there before this answer.
    client.guest().identify("CLERK", Scope::Local).unwrap();
    client.set_control_mask(ControlMask::ALL);
    assert_eq!(client.try_event().unwrap(), None, "of those that were taken back nothing is told");
    let _connecting = server.start_connecting("CLIENT", &options).unwrap();
    let event = event_by_descriptor(&mut client);
    let GuestEvent::ConnectionPending { path: PathId(0), .. } = event else { panic!("{event:?}") };
    assert_eq!(client.try_event().unwrap(), None);
}

/// A guest that was told of one and not of the other means the one.
#[test]
fn connection_with_the_number_of_one_that_was_taken_back_is_another() {
    let Two { server, client, _host } = two();
    let mut client = IucvGuest::declare(client, Wait::Block).unwrap();
    let options = PathOptions { outputs: 2, inputs: 2, kind: Kind::IUCV, ..PathOptions::DEFAULT };
    let taken_back = server.start_connecting("CLIENT", &options).unwrap();
    let event = event_by_descriptor(&mut client);
    let GuestEvent::ConnectionPending { path: one, .. } = event else { panic!("{event:?}") };
    drop(taken_back);
    client.set_control_mask(ControlMask(0));
    let options = PathOptions { data: [2; 16], ..options };
    let _connecting = server.start_connecting("CLIENT", &options).unwrap();
    // When this is answered, the client has been told.
    server.identify("PRINTER", Scope::Local).unwrap();
    assert_eq!(client.try_event().unwrap(), None);
    assert!(client.accept(one, &OPTIONS).is_err(), "it was taken back");
    assert!(client.sever(one, [0; 16]).is_err(), "it was taken back");
    client.set_control_mask(ControlMask::ALL);
    let event = event_by_descriptor(&mut client);
    let GuestEvent::ConnectionPending { path: other, data: [2, ..], .. } = event else {
        panic!("{event:?}")
    };
    assert_eq!(one, other, "or nothing was tested");
    client.sever(other, [0; 16]).unwrap();
}

#[test]
fn connection_with_queues_that_no_path_of_iucv_has_is_refused() {
    let Two { client, server, _host } = two();
    let wrong = PathOptions { kind: Kind::IUCV, outputs: 1, inputs: 2, ..PathOptions::DEFAULT };
    let right = PathOptions { outputs: 2, ..wrong };
    let is_refused = |connecting| match client.complete(connecting) {
        Err(ConnectError::Refused { problem, .. }) => problem == Problem::Refused,
        _ => false,
    };
    // For a program of one path: it waits for one that is right.
    let connecting = client.start_connecting("SERVER", &wrong).unwrap();
    let asked = client.start_connecting("SERVER", &right).unwrap();
    IucvPath::accept(&server, &OPTIONS).unwrap();
    assert!(is_refused(connecting));
    client.complete(asked).unwrap();
    // For one that takes what waits.
    let connecting = client.start_connecting("SERVER", &wrong).unwrap();
    let pending = server.wait_for_pending(|_| true).unwrap();
    let failed = IucvPath::accept_pending(&server, pending, &OPTIONS).unwrap_err();
    assert!(matches!(failed, ConnectError::Shape), "{failed}");
    assert!(is_refused(connecting));
    // For a guest of many paths.
    let connecting = client.start_connecting("SERVER", &wrong).unwrap();
    let mut server = IucvGuest::declare(server, Wait::Block).unwrap();
    while !client.has_news() {
        assert_eq!(server.try_event().unwrap(), None);
        client.poll();
    }
    assert!(is_refused(connecting));
}

#[test]
fn connection_that_is_not_fit_uses_up_the_time_to_accept_one() {
    let Two { client, server, _host } = two();
    let right = PathOptions { kind: Kind::IUCV, outputs: 2, inputs: 2, ..PathOptions::DEFAULT };
    let wrong = PathOptions { outputs: 1, ..right };
    let last = PathOptions { kind: Kind::MESSAGES, ..right };
    let asked = [wrong, wrong, right, last]
        .map(|options| client.start_connecting("SERVER", &options).unwrap());
    // All have come.
    server.wait_for_pending(|pending| pending.kind == Kind::MESSAGES).unwrap();
    let accept = || IucvPath::accept_within(&server, &OPTIONS, Duration::ZERO).unwrap();
    assert!(accept().is_none() && accept().is_none());
    assert!(accept().is_some());
    drop(asked);
}

#[test]
fn send_with_a_limit_ends_at_it_and_sends_nothing_then() {
    let few = Options { limit: 1, ..OPTIONS };
    let (go_on, wait) = mpsc::channel();
    let server = move |mut path: IucvPath| {
        wait.recv().unwrap();
        assert_eq!(path.next().unwrap().1, b"first");
        assert_eq!(path.next().unwrap().1, b"second");
    };
    talk_under(few, server, |mut path| {
        path.send(&QUIET, b"first").unwrap();
        assert_eq!(path.send_within(&QUIET, b"never", Duration::ZERO), Ok(None));
        go_on.send(()).unwrap();
        assert!(path.send_within(&QUIET, b"second", Duration::MAX).unwrap().is_some());
    });
}

#[test]
fn wait_for_an_event_with_a_limit_ends_at_it() {
    let Two { client, server, _host } = two();
    let mut server = IucvGuest::declare(server, Wait::Block).unwrap();
    assert_eq!(server.event_within(Duration::ZERO).unwrap(), None);
    let options = PathOptions { kind: Kind::IUCV, outputs: 2, inputs: 2, ..PathOptions::DEFAULT };
    let _connecting = client.start_connecting("SERVER", &options).unwrap();
    let event = server.event_within(Duration::MAX).unwrap().expect("no time is too long");
    assert_eq!(event.interrupt(), Interrupt::ConnectionPending);
}

#[test]
fn guest_of_a_host_that_does_not_come_back_has_no_more_events() {
    let Two { client: _client, server, _host } = two();
    let mut server = IucvGuest::declare(server, Wait::Block).unwrap();
    let waiting = thread::spawn(move || server.event().unwrap_err().kind());
    drop(_host);
    assert_eq!(waiting.join().unwrap(), std::io::ErrorKind::NotConnected);
}

/// A guest asks its paths several times before it has nothing to tell: what comes in the middle of that is told
/// too.
#[test]
fn what_comes_while_a_guest_asks_its_paths_is_told() {
    const PATHS: usize = 32;
    let Two { server, client, _host } = two();
    let mut client = IucvGuest::declare(client, Wait::Block).unwrap();
    let mut peers = Vec::new();
    let mut last = None;
    for _ in 0..PATHS {
        last = Some(client.connect("SERVER", &OPTIONS).unwrap());
        peers.push(IucvPath::accept(&server, &OPTIONS).unwrap());
        client.event().unwrap();
    }
    let last = last.unwrap();
    let mut echo = peers.pop().unwrap();
    echo.set_wait(Wait::Spin);
    let urgent = Outgoing { priority: true, ..QUIET };
    let echoing = thread::spawn(move || {
        for round in 0.. {
            if echo.receive(Which::Any, &mut [0; 4]).is_err() {
                return;
            }
            (0..round % 500).for_each(|_| std::hint::spin_loop());
            echo.send(&urgent, b"pong").unwrap();
        }
    });
    for round in 0..5000 {
        client.path(last).unwrap().send(&QUIET, b"ping").unwrap();
        // All are asked.
        client.set_mask(Mask::ALL);
        let event = event_by_descriptor(&mut client);
        assert_eq!(event.interrupt(), Interrupt::PriorityMessagePending, "{round}: {event:?}");
        client.path(last).unwrap().receive(Which::Any, &mut [0; 4]).unwrap();
    }
    client.sever(last, [0; 16]).unwrap();
    echoing.join().unwrap();
}

#[test]
fn nobody_waits_for_the_answer_to_a_message_that_is_not_outstanding() {
    talk(
        |mut path| {
            let (asked, _) = path.next().unwrap();
            path.reply(asked.id, b"!").unwrap();
            while path.next().is_ok() {}
        },
        |mut path| {
            let question = Outgoing { reply_bytes_max: Some(1), ..QUIET };
            let answered = path.send(&question, b"").unwrap();
            assert_eq!(path.answer(answered, 0, &mut [0]).unwrap().bytes, 1);
            let purged = path.send(&question, b"").unwrap();
            path.raw().purge(purged, 0).unwrap();
            for id in [answered, purged] {
                let error = path.answer(id, 0, &mut [0]).unwrap_err();
                assert_eq!(error, CallError::Receive(ReceiveError::NotFound));
            }
            path.raw().sever([0; 16]);
            let error = path.answer(answered, 0, &mut [0]).unwrap_err();
            assert!(matches!(error, CallError::Receive(ReceiveError::Severed(_))));
        },
    );
}

/// They are bounded by whoever asked for them: one that is taken first must not wait for one that came before it.
#[test]
fn large_replies_go_beyond_the_limit_of_messages() {
    const BYTES: usize = 100_000;
    let Two { _host, client, server } = two();
    let (mut client, mut server) = thread::scope(|scope| {
        let few = Options { limit: 1, ..OPTIONS };
        let server = scope.spawn(move || IucvPath::accept(&server, &few).unwrap());
        (IucvPath::connect(&client, "SERVER", &OPTIONS).unwrap(), server.join().unwrap())
    });
    let question = Outgoing { reply_bytes_max: Some(BYTES as u32), ..QUIET };
    let asked = [(); 3].map(|()| client.send(&question, b"").unwrap());
    for (number, id) in asked.into_iter().enumerate() {
        assert_eq!(server.next().unwrap().0.id, id);
        server.raw().reply(id, false, &[number as u8; BYTES]).unwrap();
    }
    for (number, id) in asked.into_iter().enumerate().rev() {
        let mut answer = vec![0; BYTES];
        assert_eq!(client.answer(id, 0, &mut answer).unwrap().bytes, BYTES);
        assert!(answer.iter().all(|byte| *byte == number as u8));
    }
}

#[test]
fn nobody_waits_for_the_completion_of_a_message_that_is_not_outstanding() {
    talk(
        |mut path| while path.receive(Which::Any, &mut [0]).is_ok() {},
        |mut path| {
            let send = |path: &mut IucvPath| path.send(&Outgoing::default(), b"x").unwrap();
            let which = |id| Which::Message { id, class: 0 };
            let taken = send(&mut path);
            path.completion(which(taken), &mut []).unwrap();
            let question = Outgoing { reply_bytes_max: Some(1), ..Outgoing::default() };
            let purged = path.send(&question, b"").unwrap();
            path.raw().purge(purged, 0).unwrap();
            for id in [taken, purged] {
                let error = path.completion(which(id), &mut []).unwrap_err();
                assert_eq!(error, ReceiveError::NotFound);
            }
            let unwanted = path.send(&QUIET, b"q").unwrap();
            for which in [Which::Any, Which::Class(0)] {
                let error = path.completion(which, &mut []).unwrap_err();
                assert_eq!(error, ReceiveError::NotFound, "{unwanted} is not told");
            }
            path.raw().sever([0; 16]);
            let error = path.completion(which(taken), &mut []).unwrap_err();
            assert!(matches!(error, ReceiveError::Severed(_)), "{error}");
        },
    );
}

/// Its source takes a message back while it is on its way to be shown: the next is waited for.
#[test]
fn message_that_is_purged_while_it_is_received_is_none() {
    talk(
        |mut path| {
            path.set_wait(Wait::Spin);
            let mut buffer = vec![0; 1 << 16];
            loop {
                let shown = path.next().map(|(message, _)| message);
                let received = path.receive(Which::Any, &mut buffer).map(|done| done.message);
                if let Some(error) = shown.err().or(received.err()) {
                    assert!(matches!(error, ReceiveError::Severed(_)), "{error}");
                    return;
                }
            }
        },
        |mut path| {
            let data = vec![0; 1 << 16];
            for round in 0..20_000 {
                let id = path.send(&QUIET, &data[..5000 << (round % 4)]).unwrap();
                (0..round % 300).for_each(|_| std::hint::spin_loop());
                // It may have been received.
                let _ = path.raw().purge(id, 0);
            }
            path.sever([0; 16]);
        },
    );
}
