//! Taking completions, in both.

use message::iucv::{Completion, ReceiveError, Which};
use proof::honest::body;

use super::super::model::{Found, Kind, Source};
use super::{World, until_all_is_seen};

impl World {
    /// Takes a completion, and returns whether there was one.
    pub(super) fn complete(&mut self, side: usize, which: Which, room: usize) -> bool {
        let found = self.flows[side].find_complete(which);
        let mut buffer = std::mem::take(&mut self.buffer);
        let completed = until_all_is_seen(
            &mut self.paths[side],
            |path| path.complete(which, &mut buffer[..room]),
            |completed, path| *completed == Ok(None) && path.is_urgent_ready(),
        );
        match completed {
            Ok(Some((completion, bytes, residual))) => {
                let at = self.check_completion(side, which, &found, &completion);
                let message = &mut self.flows[side].messages[at];
                let taken = if let Source::Taking { at } = message.source { at } else { 0 };
                let reply = match message.outcome.as_ref().expect("complete").kind {
                    Kind::Replied { number, bytes, .. } => body(number, bytes),
                    _ => &[],
                };
                let left = &reply[taken..];
                assert_eq!(bytes, room.min(left.len()), "{completion:?}");
                assert!(buffer[..bytes] == left[..bytes], "{completion:?} from {taken} on");
                assert_eq!(residual, left.len() - bytes);
                let at = taken + bytes;
                message.source = match (residual, at) {
                    (0, _) => Source::Taken,
                    (_, 0) => Source::Waits,
                    _ => Source::Taking { at },
                };
            }
            Ok(None) => {
                assert!(!found.must, "{which:?} is not there: {found:?}");
                self.has_polled(side);
            }
            Err(ReceiveError::WrongClass { class }) => {
                let Which::Message { class: wrong, .. } = which else { panic!("{which:?}") };
                let message = &self.flows[side].messages[found.may[0]];
                assert!(class == message.outgoing.source_class && class != wrong, "{message:?}");
            }
            Err(error) => panic!("{error}"),
        }
        self.buffer = buffer;
        matches!(completed, Ok(Some(_)))
    }

    pub(super) fn check_completion(
        &self,
        side: usize,
        which: Which,
        found: &Found,
        completion: &Completion,
    ) -> usize {
        let messages = &self.flows[side].messages;
        let at = found.may.iter().copied().find(|at| messages[*at].completion() == *completion);
        let Some(at) = at else {
            let may: Vec<_> = found.may.iter().map(|at| messages[*at].clone()).collect();
            panic!(
                "side {side} looked for {which:?} and found {completion:?}, not one of {may:#?}"
            );
        };
        if let Which::Message { class, .. } = which {
            assert_eq!(class, completion.source_class);
        }
        at
    }
}
