//! Each rule of IUCV that the other side can break, broken; and what it cannot bring about.

use fabric::path::{Counter, NO_DATA, Reason, Terms};
use fabric::queue::{Entry, Violation};
use message::iucv::{Event, Limits, MessageId, Outgoing, Path, SendError, TrySendError, Which};
use os::sync::Ordering;
use proof::bare::{Bare, BareQueue, face_iucv, label};

const LIMITS: Limits =
    Limits { ours: 600, theirs: 4, parameters_for_us: false, parameters_for_them: true };

const PLAIN: usize = 0;
const URGENT: usize = 1;

const COMPLETED: u8 = 1;
const REPLY: u8 = 2;
const REJECTED: u8 = 3;
const PURGE: u8 = 4;
const PURGED: u8 = 5;
const QUIESCE: u8 = 6;

/// The first identity of index 0.
const FIRST: MessageId = MessageId(1 << 16);

fn message(class: u32, id: u32) -> Vec<u8> {
    [class, id].map(u32::to_le_bytes).concat()
}

fn two_way(id: u32) -> Vec<u8> {
    [0, id, 100].map(u32::to_le_bytes).concat()
}

fn about(code: u8, id: MessageId) -> Vec<u8> {
    [&[code, 0][..], &id.0.to_le_bytes()].concat()
}

fn say(queue: &mut BareQueue, head: &[u8], body: &[u8]) {
    queue.bare.prime_bytes(label::MESSAGE, head.len() as u8, &[head, body].concat());
}

/// What comes of it when the honest side does one thing, and then the other says others.
fn said(first: impl FnOnce(&mut Path), then: impl FnOnce(&mut [BareQueue])) -> Option<Reason> {
    let (mut queues, mut path) = face_iucv(Terms::DEFAULT, LIMITS);
    first(&mut path);
    then(&mut queues);
    let mut buffer = [0; 100];
    while path.next_event(|_| true).is_some() {}
    while path.receive(Which::Any, &mut buffer).is_ok() {}
    path.poll();
    path.severed().map(|severed| severed.reason)
}

const RECORD: Option<Reason> = Some(Reason::Violation(Violation::Record));
const SIZE: Option<Reason> = Some(Reason::Violation(Violation::Size));

#[test]
fn messages_against_the_rules_end_the_path() {
    let nothing = |_: &mut Path| {};
    let messages = |heads: &[Vec<u8>]| {
        said(nothing, |queues| heads.iter().for_each(|head| say(&mut queues[PLAIN], head, b"")))
    };
    assert_eq!(messages(&[message(0, 0), message(0, 3), two_way(0x10001)]), None);
    assert_eq!(messages(&[message(0, 4)]), RECORD, "no such index");
    assert_eq!(messages(&[two_way(2), two_way(2)]), RECORD, "the index is taken");
    assert_eq!(messages(&[two_way(2), two_way(0x10002)]), RECORD, "the index is taken");
    let parameters = |limits: Limits, bytes: &[u8]| {
        let (mut queues, mut path) = face_iucv(Terms::DEFAULT, limits);
        say(&mut queues[PLAIN], &[message(0, 0), vec![1]].concat(), bytes);
        path.describe(Which::Any).is_ok()
    };
    assert!(!parameters(LIMITS, &[0; 8]), "we take no parameters");
    let taken = Limits { parameters_for_us: true, ..LIMITS };
    assert!(parameters(taken, &[0; 8]));
    assert!(!parameters(taken, &[0; 9]));
    let (mut queues, mut path) = face_iucv(Terms::DEFAULT, LIMITS);
    say(&mut queues[PLAIN], &two_way(2), b"");
    path.receive(Which::Any, &mut []).unwrap();
    say(&mut queues[URGENT], &two_way(0x10002), b"");
    path.poll();
    let severed = path.severed().map(|severed| severed.reason);
    assert_eq!(severed, RECORD, "the index of one that waits for its reply is taken");
    let both = said(nothing, |queues| {
        say(&mut queues[PLAIN], &message(0, 1), b"");
        say(&mut queues[URGENT], &message(0, 1), b"");
    });
    assert_eq!(both, RECORD, "the index is taken on the other queue");
    let head =
        |bytes: usize| said(nothing, |queues| say(&mut queues[URGENT], &vec![0; bytes], b""));
    assert!((0..24).filter(|bytes| ![8, 12].contains(bytes)).all(|bytes| head(bytes) == RECORD));
    let list = said(nothing, |queues| {
        queues[PLAIN].bare.lend(0, 4096);
        let entry = Entry { length: 10, ..Entry::default() };
        queues[PLAIN].bare.prime_entries(label::LIST, 0, &[entry]);
    });
    assert_eq!(list, RECORD);
}

#[test]
fn what_is_said_about_messages_against_the_rules_ends_the_path() {
    let one_way = |path: &mut Path| assert_eq!(path.send(&Outgoing::default(), b""), Ok(FIRST));
    let question = Outgoing { reply_bytes_max: Some(5), ..Outgoing::default() };
    let ask = |path: &mut Path| assert_eq!(path.send(&question, b""), Ok(FIRST));
    let ask_and_purge = |path: &mut Path| {
        ask(path);
        path.purge(FIRST, 0).unwrap();
    };
    let id = FIRST.0.to_le_bytes();
    let urgent = |first: &dyn Fn(&mut Path), said_then: &[(Vec<u8>, &[u8])]| {
        said(first, |queues| {
            said_then.iter().for_each(|(head, body)| say(&mut queues[URGENT], head, body));
        })
    };
    let completed = || vec![COMPLETED, 0];
    assert_eq!(urgent(&one_way, &[(completed(), &id)]), None);
    assert_eq!(urgent(&one_way, &[(completed(), &id), (completed(), &id)]), RECORD, "twice");
    assert_eq!(urgent(&one_way, &[(completed(), &[id, [9; 4]].concat())]), RECORD, "another's");
    assert_eq!(urgent(&one_way, &[(completed(), &id[..3])]), SIZE);
    assert_eq!(urgent(&ask, &[(completed(), &id)]), RECORD, "a reply was wanted");
    let reply = || about(REPLY, FIRST);
    assert_eq!(urgent(&ask, &[(reply(), b"12345")]), None);
    assert_eq!(urgent(&ask, &[(reply(), b"123456")]), SIZE, "more than was wanted");
    assert_eq!(urgent(&ask, &[(reply(), b""), (reply(), b"")]), RECORD, "twice");
    assert_eq!(urgent(&one_way, &[(reply(), b"")]), RECORD, "none was wanted");
    assert_eq!(urgent(&ask, &[(about(REPLY, MessageId(0)), b"")]), RECORD, "to nothing");
    let rejected = || about(REJECTED, FIRST);
    assert_eq!(urgent(&ask, &[(rejected(), b"")]), None);
    assert_eq!(urgent(&ask, &[(rejected(), b"1")]), SIZE);
    assert_eq!(urgent(&ask, &[(rejected(), b""), (reply(), b"")]), RECORD, "twice");
    assert_eq!(urgent(&ask, &[(about(PURGED, FIRST), b"")]), RECORD, "it was not purged");
    assert_eq!(urgent(&ask_and_purge, &[(about(PURGED, FIRST), b"")]), None);
    assert_eq!(urgent(&ask_and_purge, &[(reply(), b"too late")]), SIZE);
    let twice = [(about(PURGED, FIRST), &b""[..]), (about(PURGED, FIRST), b"")];
    assert_eq!(urgent(&ask_and_purge, &twice), RECORD, "twice");
    assert_eq!(urgent(&ask, &[(about(PURGE, MessageId(3)), b"")]), None, "late, not wrong");
    assert_eq!(urgent(&ask, &[(about(PURGE, MessageId(4)), b"")]), RECORD, "no such index");
    assert_eq!(urgent(&ask, &[(vec![QUIESCE, 0], b"")]), None);
    assert_eq!(urgent(&ask, &[(vec![QUIESCE, 0], b"!")]), SIZE);
    assert_eq!(urgent(&ask, &[(vec![8, 0], b"")]), RECORD);
    let plain = said(one_way, |queues| say(&mut queues[PLAIN], &completed(), &id));
    assert_eq!(plain, RECORD, "said on the queue of messages");
    let many = said(
        |path| (0..513).for_each(|_| assert!(path.push(&Outgoing::default(), b"").is_ok())),
        |queues| {
            queues[URGENT].bare.lend(0, 4096).bytes_mut(0, 2).copy_from_slice(&completed());
            let entry = Entry { length: 2 + 513 * 4, ..Entry::default() };
            queues[URGENT].bare.prime_entries(label::MESSAGE, 2, &[entry]);
        },
    );
    assert_eq!(many, SIZE, "more than one record may name");
}

/// Gives back all that the honest side has handed over so far.
fn give_back(queue: &BareQueue) {
    let shown = queue.shown_writer.counters.load(Counter::Buffers as usize, Ordering::Relaxed);
    queue.bare.give_back(shown);
}

/// The other side takes nothing of what is said to it, and sends on.
fn send_and_hear_nothing(end: impl Fn(&mut Path, &mut Bare, MessageId)) -> (usize, Option<Reason>) {
    let (mut queues, mut path) = face_iucv(Terms::DEFAULT, LIMITS);
    let mut most = 0;
    for number in 0..1000 {
        let id = MessageId(number << 16);
        say(&mut queues[PLAIN], &message(0, id.0), b"");
        if path.describe(Which::Any).is_err() {
            break;
        }
        end(&mut path, &mut queues[URGENT].bare, id);
        most = most.max(path.pending_controls());
    }
    (most, path.severed().map(|severed| severed.reason))
}

#[test]
fn side_that_hears_nothing_does_not_leave_more_to_say_than_it_may_send() {
    let theirs = LIMITS.theirs as usize;
    let rejected = send_and_hear_nothing(|path, _, id| path.reject(id).unwrap());
    assert_eq!(rejected, (theirs, RECORD));
    let received = send_and_hear_nothing(|path, _, _| {
        path.receive(Which::Any, &mut []).unwrap();
        path.flush();
    });
    assert_eq!(received, (theirs, RECORD));
    let purged = send_and_hear_nothing(|path, bare, id| {
        let head = about(PURGE, id);
        bare.prime_bytes(label::MESSAGE, head.len() as u8, &head);
        path.poll();
        path.flush();
    });
    assert_eq!(purged, (theirs, RECORD));
}

#[test]
fn purges_that_cannot_be_said_are_no_more_than_messages() {
    let (mut queues, mut path) = face_iucv(Terms::DEFAULT, LIMITS);
    let send_and_purge = |path: &mut Path, queues: &[BareQueue]| {
        let id = path.send(&Outgoing::default(), b"")?;
        path.purge(id, 0).unwrap();
        give_back(&queues[PLAIN]);
        Ok(id)
    };
    // The other side takes the messages and has done with them, and does not listen.
    for _ in 0..1000 {
        let id: Result<_, TrySendError> = send_and_purge(&mut path, &queues);
        say(&mut queues[URGENT], &[COMPLETED, 0], &id.unwrap().0.to_le_bytes());
        path.poll();
        assert!(
            path.pending_controls() <= 1,
            "{} purges of messages that are over",
            path.pending_controls()
        );
    }
    // It does not take them either.
    let purged = (0..1000).take_while(|_| send_and_purge(&mut path, &queues).is_ok()).count();
    assert_eq!((purged, path.pending_controls()), (600, 600));
    let limit = SendError::Limit { limit: 600 }.into();
    assert_eq!(path.send(&Outgoing::default(), b""), Err(limit));
    // Once it listens, all is said.
    for _ in 0..10 {
        give_back(&queues[URGENT]);
        path.flush();
    }
    assert_eq!(path.pending_controls(), 0);
}

#[test]
fn quiet_that_cannot_be_said_is_said_once_at_the_end() {
    let (queues, mut path) = face_iucv(Terms::DEFAULT, LIMITS);
    for _ in 0..1000 {
        path.quiesce();
        path.resume();
    }
    path.quiesce();
    assert_eq!(path.pending_controls(), 1);
    give_back(&queues[URGENT]);
    path.flush();
    assert_eq!(path.pending_controls(), 0);
}

#[test]
fn question_whose_source_is_told_that_it_was_received_one_way_was_severed_first() {
    let (mut queues, mut path) = face_iucv(Terms::DEFAULT, LIMITS);
    let question = Outgoing { reply_bytes_max: Some(5), ..Outgoing::default() };
    let id = path.send(&question, b"").unwrap();
    assert!(path.is_outstanding(id));
    say(&mut queues[URGENT], &[COMPLETED, 0], &id.0.to_le_bytes());
    let (completion, ..) = path.complete(Which::Any, &mut []).unwrap().unwrap();
    assert_eq!((completion.id, completion.audit), (id, message::iucv::Audit::SEVERED));
    assert!(!path.is_outstanding(id));
}

#[test]
fn reply_that_never_comes_whole_is_none_once_the_path_has_ended() {
    let (mut queues, mut path) = face_iucv(Terms::DEFAULT, LIMITS);
    let question = Outgoing { reply_bytes_max: Some(100_000), tag: 5, ..Outgoing::default() };
    let id = path.send(&question, b"").unwrap();
    let urgent = &mut queues[URGENT].bare;
    urgent.lend(0, 1 << 17);
    urgent.announce_with(&about(REPLY, id), 0, 1, 100_000, 0);
    urgent.fill(0, 40_000);
    let Some(Event::Complete(told)) = path.next_event(|_| true) else { panic!("a reply is there") };
    assert_eq!((told.id, told.reply_bytes), (id, Some(100_000)));
    let mut buffer = vec![0; 100_000];
    let (completion, bytes, residual) = path.complete(Which::Any, &mut buffer).unwrap().unwrap();
    assert_eq!((completion, bytes, residual), (told, 40_000, 60_000));
    path.sever(NO_DATA);
    let which = Which::Message { id, class: 0 };
    let (completion, bytes, residual) = path.complete(which, &mut buffer).unwrap().unwrap();
    assert_eq!((completion.tag, completion.reply_bytes, bytes, residual), (5, None, 0, 0));
    assert_eq!(completion.audit, message::iucv::Audit::SEVERED);
    assert_eq!(path.complete(which, &mut buffer), Ok(None));
}
