//! Waking a sleeper and being woken by him: the limit for everything that does not spin.

use std::os::fd::AsFd;

use os::doorbell::{Doorbell, Listen};
use os::foreign::Foreign;

use super::{End, KERNEL, MessageBytes, Opened, Opening, Transport, is_source};
use crate::fault::{Doing, Fault};

pub(super) const WAKE: Transport = Transport {
    name: "wake",
    is_reference: true,
    meaning: "a sleeper is woken and wakes the other, over doorbells; no bytes",
    exchange: Some(|opening| opening.exchange(WakeEnd::open)),
    waits: &["block"],
    bytes: MessageBytes::Fixed(0),
    ..KERNEL
};

/// One end of a doorbell. Its messages have no bytes.
#[derive(Debug)]
pub(crate) struct WakeEnd {
    bell: Doorbell,
}

impl WakeEnd {
    pub(crate) fn open(opening: Opening<'_>) -> Opened<WakeEnd> {
        let Opening { order, control, .. } = opening;
        let end: Foreign = if is_source(order) {
            let (ours, theirs) = Doorbell::ends().doing("make a doorbell")?;
            control.pass("doorbell", &[theirs.as_fd()])?;
            ours.into()
        } else {
            let [ours] = control.lent()?;
            ours
        };
        Ok(WakeEnd { bell: Doorbell::adopt(end).doing("adopt a doorbell")? })
    }
}

impl End for WakeEnd {
    #[inline(always)]
    fn send(&mut self, _bytes: usize, _build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        self.bell.ring();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, _bytes: usize, _read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        loop {
            let heard = self.bell.hear(Listen::Forever);
            if heard.rings > 0 {
                return Ok(true);
            }
            if heard.gone {
                return Ok(false);
            }
        }
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.bell.hang_up();
        Ok(())
    }
}
