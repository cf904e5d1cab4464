//! Programs that talk by APPC/VM.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use siga::appc::{
    AcceptError, AppcGuest, Completed, Conversation, Data, Ended, Function, GuestEvent, Interrupt,
    Level, Options, Received, State, StateError, Then, Trouble, Verb, VerbError,
};
use siga::connect::{Kind, Scope};
use siga::error::Problem;
use siga::host::{Embedded, System};
use siga::{ConnectError, Guest, PathOptions, Reason, Target, Wait};

const OPTIONS: Options = Options { wait: Wait::Block, ..Options::DEFAULT };
const CONFIRM: Options = Options { level: Level::Confirm, ..OPTIONS };

struct Two {
    host: Embedded,
    client: Guest,
    server: Guest,
}

/// A client, and a server that manages the resource ECHO.
fn two() -> Two {
    let host = Embedded::start(System::open()).unwrap();
    let client = Guest::attach_embedded(&host, "CLIENT").unwrap();
    let server = Guest::attach_embedded(&host, "SERVER").unwrap();
    server.identify("ECHO", Scope::Local).unwrap();
    Two { host, client, server }
}

/// Runs one side in a thread of its own.
fn talk(
    options: &Options,
    server: impl FnOnce(Conversation) + Send,
    client: impl FnOnce(Conversation),
) {
    let two = two();
    thread::scope(|scope| {
        let Two { server: guest, client: near, host: _host } = two;
        let accepted = scope
            .spawn(move || server(Conversation::accept_for(&guest, "ECHO", &OPTIONS).unwrap()));
        client(Conversation::allocate(&near, "ECHO", options).unwrap());
        accepted.join().unwrap();
    });
}

fn received(bytes: usize, data: Data, status: State) -> Received {
    Received { bytes, data, status, requested: false }
}

fn failed(error: VerbError) -> Option<Reason> {
    match error {
        VerbError::Ended(Ended::Failed(severed)) => Some(severed.reason),
        _ => None,
    }
}

#[test]
fn questions_of_any_length_are_answered_however_one_waits() {
    let lengths = [0, 1, 8, 64, 5000, 65_536, 1_000_000, 10_000_000];
    for wait in [Wait::Block, Wait::Adaptive] {
        talk(
            &Options { wait, ..OPTIONS },
            |mut conversation| {
                assert_eq!(conversation.resource().unwrap().as_str(), "ECHO");
                assert_eq!(conversation.level(), Level::None);
                let mut record = Vec::new();
                loop {
                    let asked = conversation.receive_whole(&mut record).unwrap();
                    if asked.status == State::Sever {
                        assert_eq!((asked.data, conversation.state()), (Data::None, State::Sever));
                        return;
                    }
                    assert_eq!(asked, received(record.len(), Data::Complete, State::Send));
                    record.reverse();
                    conversation.send(&record, Then::Receive).unwrap();
                }
            },
            |mut conversation| {
                for (round, length) in lengths.into_iter().enumerate() {
                    let question: Vec<u8> = (0..length).map(|at| (at * 7 + round) as u8).collect();
                    conversation.send(&question, Then::Receive).unwrap();
                    let mut answer = vec![0; length];
                    let answered = conversation.receive(&mut answer).unwrap();
                    assert_eq!(answered, received(length, Data::Complete, State::Send));
                    assert!(answer.iter().rev().eq(&question));
                }
                conversation.send_without_data(Then::Sever).unwrap();
            },
        );
    }
}

#[test]
fn stream_waits_for_its_receiver_and_is_received_in_parts() {
    const RECORDS: u32 = 5_000;
    let record = |number: u32| vec![number as u8; number as usize * 37 % 9_000];
    talk(
        &OPTIONS,
        |mut conversation| {
            let mut part = [0; 1000];
            for number in 0..RECORDS {
                let mut whole = Vec::new();
                while let Received { bytes, data: Data::Incomplete { left }, .. } =
                    conversation.receive(&mut part).unwrap()
                {
                    whole.extend_from_slice(&part[..bytes]);
                    assert_eq!(whole.len() + left, record(number).len());
                }
                let rest = record(number).len() - whole.len();
                whole.extend_from_slice(&part[..rest]);
                assert_eq!(whole, record(number), "record {number}");
            }
            assert_eq!(conversation.receive(&mut part).unwrap().status, State::Sever);
        },
        |mut conversation| {
            for number in 0..RECORDS {
                if number % 3 == 0 {
                    conversation.send(&record(number), Then::More).unwrap();
                } else {
                    conversation.push(&record(number)).unwrap();
                }
            }
            conversation.send_without_data(Then::Sever).unwrap();
        },
    );
}

#[test]
fn sender_waits_until_its_partner_confirms_or_finds_an_error() {
    talk(
        &CONFIRM,
        |mut conversation| {
            let mut record = [0; 10];
            for (status, state) in
                [(State::Confirm, State::Receive), (State::ConfirmSend, State::Send)]
            {
                assert_eq!(conversation.receive(&mut record).unwrap().status, status);
                conversation.confirmed().unwrap();
                assert_eq!(conversation.state(), state);
            }
            conversation.send(b"your turn", Then::Receive).unwrap();
            assert_eq!(conversation.receive(&mut record).unwrap().status, State::Confirm);
            conversation.error().unwrap();
            conversation.send(b"not like this", Then::Receive).unwrap();
            assert_eq!(conversation.receive(&mut record).unwrap().status, State::ConfirmSever);
            conversation.confirmed().unwrap();
            assert_eq!(conversation.state(), State::Reset);
        },
        |mut conversation| {
            let mut record = [0; 20];
            conversation.send(b"one", Then::Confirm).unwrap();
            conversation.send(b"two", Then::ConfirmReceive).unwrap();
            assert_eq!(conversation.receive(&mut record).unwrap().status, State::Send);
            let trouble = conversation.send(b"three", Then::Confirm).unwrap_err();
            assert_eq!(trouble, VerbError::Trouble(Trouble::Purging));
            assert_eq!(conversation.receive(&mut record).unwrap().bytes, 13);
            conversation.send_without_data(Then::ConfirmSever).unwrap();
            assert_eq!(conversation.state(), State::Reset);
        },
    );
}

#[test]
fn error_and_request_reach_a_sender_that_waits_for_room() {
    talk(
        &OPTIONS,
        |mut conversation| {
            conversation.receive(&mut [0; 10]).unwrap();
            conversation.error().unwrap();
            conversation.send(b"too much", Then::Receive).unwrap();
            conversation.request().unwrap();
            let mut record = Vec::new();
            while conversation.receive_whole(&mut record).unwrap().status != State::Send {}
            conversation.send_without_data(Then::Sever).unwrap();
        },
        |mut conversation| {
            let record = vec![1; 3_000_000];
            let error = loop {
                // Nobody receives: after some records this waits.
                if let Err(error) = conversation.send(&record, Then::More) {
                    break error;
                }
            };
            assert_eq!(error, VerbError::Trouble(Trouble::Purging));
            let mut why = [0; 10];
            let told = conversation.receive(&mut why).unwrap();
            assert_eq!((&why[..8], told.status), (&b"too much"[..], State::Send));
            let mut sent = 0;
            while !conversation.take_requested() {
                conversation.send(&record[..1000], Then::More).unwrap();
                sent += 1;
            }
            conversation.send(&[sent as u8], Then::Receive).unwrap();
            assert_eq!(conversation.receive(&mut why).unwrap().status, State::Sever);
        },
    );
}

#[test]
fn whoever_waits_learns_at_once_that_his_partner_is_gone() {
    for verb in [Verb::Receive, Verb::Send, Verb::Confirm] {
        talk(
            &CONFIRM,
            move |mut conversation| {
                if verb != Verb::Send {
                    conversation.receive(&mut [0; 10]).unwrap();
                }
                // Unwinding, or killed: nobody says a word.
                drop(conversation);
            },
            |mut conversation| {
                let error = match verb {
                    Verb::Receive => {
                        conversation.send(b"question", Then::Receive).unwrap();
                        conversation.receive(&mut [0; 10]).unwrap_err()
                    }
                    Verb::Confirm => conversation.confirm().unwrap_err(),
                    _ => loop {
                        if let Err(error) = conversation.send(&[0; 50_000], Then::More) {
                            break error;
                        }
                    },
                };
                assert_eq!(failed(error), Some(Reason::Gone), "{verb}");
                assert_eq!(conversation.state(), State::Sever);
                let refused = StateError { verb: Verb::Send, state: State::Sever };
                assert_eq!(conversation.send(b"x", Then::More), Err(refused.into()));
                conversation.sever([0; 16]).unwrap();
                assert_eq!(conversation.state(), State::Reset);
            },
        );
    }
}

#[test]
fn abnormal_end_comes_with_the_partners_word_about_it() {
    talk(
        &OPTIONS,
        |mut conversation| {
            conversation.receive(&mut [0; 10]).unwrap();
            conversation.sever(*b"out of paper    ").unwrap();
            let refused = StateError { verb: Verb::Sever, state: State::Reset };
            assert_eq!(conversation.sever([0; 16]), Err(refused));
        },
        |mut conversation| {
            conversation.send(b"print this", Then::Receive).unwrap();
            let error = conversation.receive(&mut [0; 10]).unwrap_err();
            assert_eq!(error, VerbError::Ended(Ended::Abend(*b"out of paper    ")));
        },
    );
}

fn problem<T>(result: Result<T, ConnectError>) -> Option<Problem> {
    match result {
        Err(ConnectError::Refused { problem, .. }) => Some(problem),
        _ => None,
    }
}

#[test]
fn resource_is_found_while_somebody_manages_it_and_the_local_one_first() {
    let Two { host, client, server } = two();
    let far = Guest::attach_embedded(&host, "FAR").unwrap();
    let unknown = problem(Conversation::allocate(&client, "NOWHERE", &OPTIONS));
    assert_eq!((unknown, Problem::NoResource.number()), (Some(Problem::NoResource), 21));
    far.identify("ECHO", Scope::Global).unwrap();
    // Accepts one conversation and gives the guest back.
    let accept = |guest: Guest| {
        let name = guest.name();
        thread::scope(|scope| {
            let accepting = scope.spawn(move || {
                let mut conversation = Conversation::accept_for(&guest, "ECHO", &OPTIONS).unwrap();
                assert_eq!(conversation.receive(&mut []).unwrap().status, State::Sever);
                guest
            });
            let mut conversation = Conversation::allocate(&client, "ECHO", &OPTIONS).unwrap();
            conversation.send_without_data(Then::Sever).unwrap();
            assert_eq!(conversation.peer(), name);
            accepting.join().unwrap()
        })
    };
    let server = accept(server);
    server.revoke("ECHO", Scope::Local).unwrap();
    let far = accept(far);
    far.revoke("ECHO", Scope::Global).unwrap();
    let revoked = problem(Conversation::allocate(&client, "ECHO", &OPTIONS));
    assert_eq!(revoked, Some(Problem::NoResource));
}

#[test]
fn revoked_resource_leaves_conversations_alone() {
    let Two { host: _host, client, server } = two();
    let (tell, told) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut conversation = Conversation::accept(&server, &OPTIONS).unwrap();
            server.revoke("ECHO", Scope::Local).unwrap();
            tell.send(()).unwrap();
            let mut record = [0; 10];
            let asked = conversation.receive(&mut record).unwrap();
            conversation.send(&record[..asked.bytes], Then::Sever).unwrap();
        });
        let mut conversation = Conversation::allocate(&client, "ECHO", &OPTIONS).unwrap();
        told.recv().unwrap();
        let gone = problem(Conversation::allocate(&client, "ECHO", &OPTIONS));
        assert_eq!(gone, Some(Problem::NoResource));
        conversation.send(b"still here", Then::Receive).unwrap();
        assert_eq!(conversation.receive(&mut [0; 10]).unwrap().bytes, 10);
    });
}

/// Both sides without waiting: each of the six kinds of interrupt, in one thread.
#[test]
fn functions_complete_and_events_tell() {
    let Two { host: _host, client, server } = two();
    let mut server = AppcGuest::declare(server, Wait::Block).unwrap();
    let mut client = AppcGuest::declare(client, Wait::Block).unwrap();
    let target = Target::Resource("ECHO".parse().unwrap());

    let near = client.allocate_to(target, &Options { data: [1; 16], ..CONFIRM }).unwrap();
    assert_eq!(client.state(near), State::Connect);
    let connect = StateError { verb: Verb::Receive, state: State::Connect };
    let early = client.start(near, Function::Receive { target: vec![0] }).unwrap().unwrap();
    assert_eq!(early.outcome, Err(connect.into()));
    let Err(AcceptError::State(error)) = client.accept(near, &OPTIONS) else {
        panic!("it is not pending here, and that is not looked at")
    };
    assert_eq!(error, StateError { verb: Verb::Accept, state: State::Connect });

    let event = server.event().unwrap();
    assert_eq!(event.interrupt(), Interrupt::ConnectionPending);
    let GuestEvent::ConnectionPending { conversation: far, level, data, .. } = event else {
        panic!("a connection is pending")
    };
    assert_eq!((level, data), (Level::Confirm, [1; 16]));
    server.accept(far, &OPTIONS).unwrap();
    assert_eq!(client.event().unwrap().interrupt(), Interrupt::ConnectionComplete);

    // A receive that waits, and one more.
    let target = vec![0; 10];
    assert_eq!(server.start(far, Function::Receive { target: target.clone() }), Ok(None));
    assert!(server.start(far, Function::Error).is_err(), "busy");
    let record = b"confirm me".to_vec();
    let send = Function::Send { record: record.clone(), then: Then::Confirm };
    assert_eq!(client.start(near, send.clone()), Ok(None));
    let outcome = Ok(Some(received(10, Data::Complete, State::Confirm)));
    let completed = Completed { function: Function::Receive { target: record }, outcome };
    assert_eq!(server.event().unwrap(), GuestEvent::FunctionComplete(far, completed));
    let request = Completed { function: Function::Request, outcome: Ok(None) };
    assert_eq!(server.start(far, Function::Request), Ok(Some(request)));
    // It is told though a function waits.
    assert_eq!(client.event().unwrap(), GuestEvent::Request(near));
    assert_eq!(client.try_event().unwrap(), None);
    assert!(server.start(far, Function::Confirmed).unwrap().is_some());
    let completed = Completed { function: send, outcome: Ok(None) };
    assert_eq!(client.event().unwrap(), GuestEvent::FunctionComplete(near, completed));

    // What comes while no function waits for it.
    let say = Function::Send { record: vec![7], then: Then::Receive };
    assert!(client.start(near, say).unwrap().is_some());
    assert_eq!(server.event().unwrap(), GuestEvent::MessagePending(far));
    assert_eq!(server.try_event().unwrap(), None);
    let receive = server.start(far, Function::Receive { target }).unwrap().unwrap();
    assert_eq!(receive.outcome.unwrap().unwrap().status, State::Send);

    server.sever(far, [9; 16]).unwrap();
    assert_eq!(client.event().unwrap(), GuestEvent::Severed(near, Ended::Abend([9; 16])));
    assert_eq!(client.try_event().unwrap(), None);
    assert!(client.prepare_wait(), "an end that was told keeps nobody awake");
    client.sever(near, [0; 16]).unwrap();
    assert_eq!(client.state(near), State::Reset);
    let none = StateError { verb: Verb::Sever, state: State::Reset };
    assert_eq!(client.sever(near, [0; 16]), Err(none));
    let again = server.retrieve();
    again.revoke("ECHO", Scope::Local).unwrap();
}

#[test]
fn partner_that_always_sends_leaves_the_others_their_turn() {
    let Two { host: _host, client, server } = two();
    let mut server = AppcGuest::declare(server, Wait::Block).unwrap();
    let mut client = AppcGuest::declare(client, Wait::Block).unwrap();
    let target = Target::Resource("ECHO".parse().unwrap());
    let conversations = [(); 3].map(|()| {
        let near = client.allocate_to(target, &OPTIONS).unwrap();
        let event = server.event().unwrap();
        let GuestEvent::ConnectionPending { conversation: far, .. } = event else {
            panic!("{event:?}")
        };
        server.accept(far, &OPTIONS).unwrap();
        client.event().unwrap();
        (near, far)
    });
    let mut say = |id| {
        let say = Function::Send { record: vec![7], then: Then::More };
        client.start(id, say).unwrap().unwrap().outcome.unwrap();
        client.prepare_wait();
    };
    conversations.iter().for_each(|(near, _)| say(*near));
    let mut told = BTreeSet::new();
    for _ in 0..conversations.len() {
        let event = server.event().unwrap();
        let GuestEvent::MessagePending(id) = event else { panic!("{event:?}") };
        server.start(id, Function::Receive { target: vec![0] }).unwrap().unwrap();
        told.insert(id);
        say(conversations.iter().find(|(_, far)| *far == id).unwrap().0);
    }
    assert_eq!(told.len(), conversations.len(), "only {told:?} were told of");
}

/// A function that waits for room, on a conversation that the guest has put to sleep.
#[test]
fn guest_that_sends_without_end_is_woken_when_there_is_room() {
    let Two { host: _host, client, server } = two();
    const RECORDS: usize = 300;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut conversation = Conversation::accept(&server, &OPTIONS).unwrap();
            let mut record = vec![0; 100_000];
            for number in 0..RECORDS {
                let got = conversation.receive(&mut record).unwrap();
                assert_eq!(got, received(100_000, Data::Complete, State::Receive));
                assert_eq!(record[99_999], number as u8);
            }
            conversation.error().unwrap();
        });
        let mut client = AppcGuest::declare(client, Wait::Block).unwrap();
        let target = Target::Resource("ECHO".parse().unwrap());
        let id = client.allocate_to(target, &OPTIONS).unwrap();
        client.event().unwrap();
        for number in 0..RECORDS {
            let record = vec![number as u8; 100_000];
            let send = Function::Send { record, then: Then::More };
            let completed = match client.start(id, send).unwrap() {
                Some(completed) => completed,
                None => match client.event().unwrap() {
                    GuestEvent::FunctionComplete(_, completed) => completed,
                    other => panic!("{other:?}"),
                },
            };
            assert_eq!(completed.outcome, Ok(None));
        }
        assert_eq!(client.event().unwrap(), GuestEvent::MessagePending(id));
        let more = client.start(id, Function::SendWithoutData(Then::Receive)).unwrap().unwrap();
        assert_eq!(more.outcome, Err(VerbError::Trouble(Trouble::Purging)));
    });
}

#[test]
fn receive_with_a_limit_ends_in_the_middle_of_a_record() {
    const BYTES: usize = 3 << 20;
    let (done, wait) = channel();
    let server = move |mut conversation: Conversation| {
        wait.recv().unwrap();
        let mut target = vec![0; BYTES];
        let part = conversation.receive_within(&mut target, Duration::ZERO).unwrap().unwrap();
        let Data::Incomplete { left } = part.data else { panic!("the time is over: {part:?}") };
        assert_eq!(part.bytes + left, BYTES);
        let rest = conversation.receive(&mut target[part.bytes..]).unwrap();
        assert_eq!(rest, received(left, Data::Complete, State::Send));
        assert_eq!(target, vec![7; BYTES]);
        conversation.send_without_data(Then::Sever).unwrap();
    };
    talk(&OPTIONS, server, |mut conversation| {
        conversation.send(&vec![7; BYTES], Then::Receive).unwrap();
        done.send(()).unwrap();
        let end = conversation.receive(&mut []).unwrap();
        assert_eq!(end, received(0, Data::None, State::Sever));
    });
}

#[test]
fn wait_for_an_event_with_a_limit_ends_at_it() {
    let Two { client, server, host: _host } = two();
    let mut server = AppcGuest::declare(server, Wait::Block).unwrap();
    assert_eq!(server.event_within(Duration::ZERO).unwrap(), None);
    let options = PathOptions { kind: Kind::APPC, ..PathOptions::DEFAULT };
    let _connecting = client.start_connecting("SERVER", &options).unwrap();
    let event = server.event_within(Duration::MAX).unwrap().expect("no time is too long");
    assert_eq!(event.interrupt(), Interrupt::ConnectionPending);
}

#[test]
fn connection_with_queues_that_no_conversation_has_is_refused() {
    let Two { client, server, host: _host } = two();
    let wrong = PathOptions { kind: Kind::APPC, outputs: 2, ..PathOptions::DEFAULT };
    let right = PathOptions { outputs: 1, ..wrong };
    let is_refused = |connecting| problem(client.complete(connecting)) == Some(Problem::Refused);
    let connecting = client.start_connecting("SERVER", &wrong).unwrap();
    let asked = client.start_connecting("SERVER", &right).unwrap();
    Conversation::accept(&server, &OPTIONS).unwrap();
    assert!(is_refused(connecting));
    client.complete(asked).unwrap();
    let connecting = client.start_connecting("SERVER", &wrong).unwrap();
    let pending = server.wait_for_pending(|_| true).unwrap();
    let failed = Conversation::accept_pending(&server, pending, &OPTIONS).unwrap_err();
    assert!(matches!(failed, ConnectError::Shape), "{failed}");
    assert!(is_refused(connecting));
    let connecting = client.start_connecting("SERVER", &wrong).unwrap();
    let mut server = AppcGuest::declare(server, Wait::Block).unwrap();
    while !client.has_news() {
        assert_eq!(server.try_event().unwrap(), None);
        client.poll();
    }
    assert!(is_refused(connecting));
}
