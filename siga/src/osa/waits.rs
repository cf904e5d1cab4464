//! Data devices as members of a waiter.

use std::os::fd::BorrowedFd;

use fabric::path::Counter;
use net::osa::buffer::{Reading, Writing};
use net::osa::device::{Device, OUTPUTS_MAX};
use net::osa::interface::{Interface, State};
use os::doorbell::Listen;

use crate::waiter::Member;
use crate::waiting::count_polls;

/// Listens to one of the two doorbells of a device: of what comes, or of what is given back. Returns true while there is somebody to ring it.
fn hear(index: usize, reading: &mut [Reading], writing: &mut [Writing]) -> bool {
    match index {
        0 => {
            reading[0].receiver().hear(Listen::Now);
            reading[0].as_receiver().ended().is_none()
        }
        _ => {
            writing[0].sender().hear(Listen::Now);
            writing[0].as_sender().ended().is_none()
        }
    }
}

/// Announces that nobody polls. Room is waited for where it is wanted.
fn sleep(reading: &mut [Reading], writing: &mut [Writing], wants_room: bool) {
    for end in reading {
        end.receiver().announce_sleep();
    }
    for end in writing {
        end.sender().flush();
        if wants_room {
            end.sender().announce_sleep();
        }
    }
}

fn wake(reading: &mut [Reading], writing: &mut [Writing]) {
    reading.iter_mut().for_each(|end| end.receiver().wake());
    writing.iter_mut().for_each(|end| end.sender().wake());
}

fn trim(reading: &mut [Reading], writing: &mut [Writing]) -> bool {
    reading.iter_mut().for_each(|end| end.receiver().trim());
    writing.iter_mut().fold(false, |may_trim, end| end.sender().trim() | may_trim)
}

/// An adapter's end, ready when the guest has handed over a buffer, or the path has ended.
#[derive(Debug)]
pub(super) struct AtAdapter(pub(super) Device);

impl Member for AtAdapter {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        let (inputs, outputs) = self.0.queues();
        add(outputs[0].as_receiver().descriptor());
        add(inputs[0].as_sender().descriptor());
    }

    fn is_path(&self) -> bool {
        true
    }

    fn hear(&mut self, index: usize) -> bool {
        let (inputs, outputs) = self.0.queues_mut();
        hear(index, outputs, inputs)
    }

    #[inline]
    fn is_ready(&mut self) -> bool {
        self.0.is_ready()
    }

    fn sleep(&mut self) {
        let wants_room = self.0.has_untold();
        let (inputs, outputs) = self.0.queues_mut();
        sleep(outputs, inputs, wants_room);
        outputs[0].receiver().counters().add(Counter::Sleeps, 1);
    }

    fn wake(&mut self) {
        let (inputs, outputs) = self.0.queues_mut();
        wake(outputs, inputs);
    }

    fn trim(&mut self) -> bool {
        let (inputs, outputs) = self.0.queues_mut();
        trim(outputs, inputs)
    }

    fn count(&mut self, polls: u64, spinning_ns: u64) {
        let (_, outputs) = self.0.queues_mut();
        count_polls(outputs[0].receiver().counters(), polls, false, spinning_ns);
    }
}

/// A guest's end, ready when the adapter has handed over a buffer, or has given back what is waited for, or the path has ended.
#[derive(Debug)]
pub(super) struct AtGuest {
    pub(super) interface: Interface,
    /// The output queues for which a frame waits for room.
    pub(super) wants_room: [bool; OUTPUTS_MAX],
}

impl AtGuest {
    /// Returns true if there is room in a queue for which a frame waits.
    fn has_room(&mut self) -> bool {
        let AtGuest { interface, wants_room } = self;
        if !wants_room.contains(&true) {
            return false;
        }
        let (_, outputs) = interface.queues_mut();
        outputs.iter_mut().zip(wants_room).any(|(output, wants)| *wants && output.has_room())
    }

    /// Takes note that whoever waits for room is told of it. Returns true if there is some.
    pub(super) fn take_room(&mut self) -> bool {
        let has_room = self.has_room();
        if has_room {
            let AtGuest { interface, wants_room } = self;
            let (_, outputs) = interface.queues_mut();
            for (output, wants) in outputs.iter_mut().zip(wants_room) {
                *wants = *wants && !output.has_room();
            }
        }
        has_room
    }
}

impl Member for AtGuest {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        let (inputs, outputs) = self.interface.queues();
        add(inputs[0].as_receiver().descriptor());
        add(outputs[0].as_sender().descriptor());
    }

    fn is_path(&self) -> bool {
        true
    }

    fn hear(&mut self, index: usize) -> bool {
        let (inputs, outputs) = self.interface.queues_mut();
        hear(index, inputs, outputs)
    }

    #[inline]
    fn is_ready(&mut self) -> bool {
        // The end of the path may have been noticed by what was sent.
        if self.interface.is_ready() || matches!(self.interface.state(), State::Over(_)) {
            return true;
        }
        self.has_room()
    }

    fn sleep(&mut self) {
        self.interface.finish();
        self.interface.flush(true);
        let wants_room = self.wants_room.contains(&true)
            || self.interface.has_unsent()
            || self.interface.has_open();
        let (inputs, outputs) = self.interface.queues_mut();
        sleep(inputs, outputs, wants_room);
        inputs[0].receiver().counters().add(Counter::Sleeps, 1);
    }

    fn wake(&mut self) {
        let (inputs, outputs) = self.interface.queues_mut();
        wake(inputs, outputs);
    }

    fn trim(&mut self) -> bool {
        let (inputs, outputs) = self.interface.queues_mut();
        trim(inputs, outputs)
    }

    fn count(&mut self, polls: u64, spinning_ns: u64) {
        let (inputs, _) = self.interface.queues_mut();
        count_polls(inputs[0].receiver().counters(), polls, false, spinning_ns);
    }
}
