//! An honest guest, and a host driven by a script.

use siga::connect::Scope;
use siga::{Connecting, Guest, Path, PathOptions, Pending};

use super::impostor::Impostor;
use super::neighbour::Neighbour;
use super::script::Script;
use super::{DEEDS_MAX, DEEDS_PER_VISIT, Watch};

/// Connections and paths that the guest's user has at a time.
const HELD_MAX: usize = 6;

/// Descriptors beyond what was there before, of guest, host and neighbour together.
const DESCRIPTORS_MAX: usize = 800;

/// A guest, and what its user holds.
struct Visiting {
    guest: Guest,
    connecting: Vec<Connecting>,
    pending: Vec<Pending>,
    paths: Vec<Path>,
}

/// A host that may say anything at any time, with descriptors of all kinds: answers to what was not asked
/// and to what will be, paths that are none, connections without end; that hangs up and is there again.
///
/// # Panics
/// If it does more harm than to refuse its service.
pub fn control_protocol_guest(program: &[u8]) {
    let watch = Watch::start();
    {
        let mut script = Script::new(program);
        let mut neighbour = Neighbour::new();
        let (mut impostor, guest) = Impostor::admit("GUEST");
        let mut visiting =
            Visiting { guest, connecting: Vec::new(), pending: Vec::new(), paths: Vec::new() };
        for deed in 0..DEEDS_MAX {
            if script.is_over() {
                break;
            }
            if script.below(2) == 0 {
                impostor.act(&mut script);
            } else {
                visiting.act(&mut impostor, &mut script);
            }
            if deed.is_multiple_of(DEEDS_PER_VISIT) {
                neighbour.visit();
                assert!(super::descriptors() < watch.descriptors + DESCRIPTORS_MAX);
            }
        }
        neighbour.visit();
    }
    watch.stop();
}

impl Visiting {
    /// One verb.
    fn act(&mut self, impostor: &mut Impostor, script: &mut Script<'_>) {
        match script.below(16) {
            0..3 => {
                let later_ns = script.pick(&[0, 200_000_000, 11_000_000_000]);
                self.guest.poll_at(os::processor::now_ns() + later_ns);
            }
            3..5 => {
                let connecting = self.guest.start_connecting("OTHER", &options(script));
                self.connecting.extend(connecting.ok());
                self.connecting.truncate(HELD_MAX);
            }
            5..8 => {
                if let Some(mut connecting) = pick(&mut self.connecting, script) {
                    match self.guest.try_complete(&mut connecting) {
                        Ok(Some(path)) => self.hold(path),
                        Ok(None) => self.connecting.push(connecting),
                        Err(_) => {}
                    }
                }
            }
            8 => drop(pick(&mut self.connecting, script)),
            9 => {
                self.pending.extend(self.guest.pending());
                self.pending.truncate(HELD_MAX);
            }
            10 => self.accept(impostor, script),
            11 => {
                if let Some(pending) = pick(&mut self.pending, script) {
                    self.guest.refuse(pending, script.data());
                }
            }
            12 => self.manage(impostor, script),
            13 => drop(pick(&mut self.paths, script)),
            _ => self.paths.iter_mut().for_each(|path| converse(path, script)),
        }
        self.guest.has_news();
    }

    fn hold(&mut self, path: Path) {
        self.paths.push(path);
        if self.paths.len() > HELD_MAX {
            self.paths.remove(0);
        }
    }

    /// Accepts a connection. The guest waits for the answer, which is there before it asks.
    fn accept(&mut self, impostor: &mut Impostor, script: &mut Script<'_>) {
        let Some(pending) = pick(&mut self.pending, script) else { return };
        let options = options(script);
        let _asked = self.foresee(impostor, script);
        if let Ok(path) = self.guest.accept_pending(pending, &options) {
            self.hold(path);
        }
    }

    /// Manages a resource, or does so no longer.
    fn manage(&mut self, impostor: &mut Impostor, script: &mut Script<'_>) {
        let is_new = script.below(2) == 0;
        let _asked = self.foresee(impostor, script);
        let _ = match is_new {
            true => self.guest.identify("RESOURCE", Scope::Local),
            false => self.guest.revoke("RESOURCE", Scope::Local),
        };
    }

    /// Has the next question answered, or the host gone. What is asked here tells the host how far the
    /// questions are counted.
    fn foresee(&self, impostor: &mut Impostor, script: &mut Script<'_>) -> Option<Connecting> {
        impostor.accept();
        impostor.listen();
        let asked = self.guest.start_connecting("OTHER", &PathOptions::DEFAULT).ok();
        impostor.listen();
        impostor.answer_ahead(script);
        asked
    }
}

fn options(script: &mut Script<'_>) -> PathOptions {
    let (shape, allowance) = (script.shape(), script.allowance());
    PathOptions {
        outputs: shape.outputs,
        inputs: shape.inputs,
        storage_bytes: allowance.storage_bytes,
        messages: allowance.messages,
        ..PathOptions::DEFAULT
    }
}

/// Uses a path, whose other side has words that are not to be trusted, and doorbells that may be none.
fn converse(path: &mut Path, script: &mut Script<'_>) {
    let bytes = script.pick(&[0, 8, 300, 30_000, 70_000]);
    // Errors are as good as anything.
    let _ = path.try_send(crate::honest::body(1, bytes));
    let _ = path.try_receive().is_ok();
    path.flush();
    path.trim();
}

fn pick<T>(all: &mut Vec<T>, script: &mut Script<'_>) -> Option<T> {
    (!all.is_empty()).then(|| all.swap_remove(script.below(all.len())))
}
