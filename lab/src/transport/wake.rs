//! Waking a sleeper and being woken by him: the limit for everything that does not spin.

use os::doorbell::{Doorbell, Listen};

use super::{Can, End, KERNEL, MessageBytes, Opening, Transport};
use crate::fault::{Doing, Fault};

pub(super) const WAKE: Transport = Transport {
    name: "wake",
    is_reference: true,
    meaning: "a sleeper is woken and wakes the other, over doorbells; no bytes",
    can: &[Can::Exchange],
    carry: |opening| opening.over(WakeEnd::open),
    waits: &["block"],
    bytes: MessageBytes::Fixed(0),
    ..KERNEL
};

/// One end of a doorbell. Its messages have no bytes.
#[derive(Debug)]
struct WakeEnd {
    bell: Doorbell,
}

impl WakeEnd {
    fn open(opening: &mut Opening<'_>) -> Result<WakeEnd, Fault> {
        let end = opening.end(|| Doorbell::ends().doing("make a doorbell"))?;
        Ok(WakeEnd { bell: Doorbell::adopt(end).doing("adopt a doorbell")? })
    }
}

impl End for WakeEnd {
    #[inline(always)]
    fn send(&mut self, _bytes: usize, _build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        self.bell.ring();
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
