//! Each rule of IUCV that the other side can break, broken; and what it cannot bring about.

use fabric::iucv::{Event, Limits, MessageId, Outgoing, Which};
use fabric::path::Terms;
use proof::bare::face_iucv;

const LIMITS: Limits =
    Limits { ours: 600, theirs: 4, parameters_for_us: false, parameters_for_them: true };

const URGENT: usize = 1;

const REPLY: u8 = 2;

fn about(code: u8, id: MessageId) -> Vec<u8> {
    [&[code, 0][..], &id.0.to_le_bytes()].concat()
}

#[test]
fn reply_that_never_comes_whole_is_none_once_the_path_has_ended() {
    let (mut queues, mut path) = face_iucv(Terms::default(), LIMITS);
    let question = Outgoing { answer: Some(100_000), tag: 5, ..Outgoing::default() };
    let id = path.send(&question, b"").unwrap();
    let urgent = &mut queues[URGENT].bare;
    urgent.lend(0, 1 << 17);
    urgent.announce_with(&about(REPLY, id), 0, 1, 100_000, 0);
    urgent.fill(0, 40_000);
    let Some(Event::Complete(told)) = path.next_event(|_| true) else { panic!("a reply is there") };
    assert_eq!((told.id, told.answer), (id, Some(100_000)));
    let mut buffer = vec![0; 100_000];
    let (completion, bytes, residual) = path.complete(Which::Any, &mut buffer).unwrap().unwrap();
    assert_eq!((completion, bytes, residual), (told, 40_000, 60_000));
    path.sever([0; 16]);
    let which = Which::Message { id, class: 0 };
    let (completion, bytes, residual) = path.complete(which, &mut buffer).unwrap().unwrap();
    assert_eq!((completion.tag, completion.answer, bytes, residual), (5, None, 0, 0));
    assert_eq!(completion.audit, fabric::iucv::Audit::SEVERED);
    assert_eq!(path.complete(which, &mut buffer), Ok(None));
}
