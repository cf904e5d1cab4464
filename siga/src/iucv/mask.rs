//! Masks: which events a guest reports.

use std::ops::BitOr;

use message::iucv::Interrupt;

/// Which events are reported, by the bits of SETMASK. Combine them with `|`; bits outside are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(pub u8);

impl Mask {
    /// All events, the default.
    pub const ALL: Mask = Mask(0xf8);
    /// Message pending, without priority.
    pub const MESSAGES: Mask = Mask(0x80);
    /// Message pending, with priority.
    pub const PRIORITY_MESSAGES: Mask = Mask(0x40);
    /// Message complete, without priority.
    pub const REPLIES: Mask = Mask(0x20);
    /// Message complete, with priority.
    pub const PRIORITY_REPLIES: Mask = Mask(0x10);
    /// Connections and the state of paths: [`ControlMask`] has them one by one.
    pub const CONTROL: Mask = Mask(0x08);
}

/// Which events about connections are reported, by the bits of SETCMASK. Combine them with `|`; bits outside are
/// ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlMask(pub u8);

impl ControlMask {
    /// All events, the default.
    pub const ALL: ControlMask = ControlMask(0xf8);
    /// Connection pending.
    pub const PENDING: ControlMask = ControlMask(0x80);
    /// Connection complete.
    pub const COMPLETE: ControlMask = ControlMask(0x40);
    /// Path severed.
    pub const SEVERED: ControlMask = ControlMask(0x20);
    /// Path quiesced.
    pub const QUIESCED: ControlMask = ControlMask(0x10);
    /// Path resumed.
    pub const RESUMED: ControlMask = ControlMask(0x08);
}

impl BitOr for Mask {
    type Output = Mask;

    fn bitor(self, other: Mask) -> Mask {
        Mask(self.0 | other.0)
    }
}

impl BitOr for ControlMask {
    type Output = ControlMask;

    fn bitor(self, other: ControlMask) -> ControlMask {
        ControlMask(self.0 | other.0)
    }
}

/// Both masks of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Masks {
    pub(super) mask: Mask,
    pub(super) control: ControlMask,
}

impl Masks {
    pub(super) const ALL: Masks = Masks { mask: Mask::ALL, control: ControlMask::ALL };

    /// Whether events of this type are reported.
    pub(super) fn let_through(self, interrupt: Interrupt) -> bool {
        let Masks { mask, control } = self;
        let bit = match interrupt {
            Interrupt::MessagePending => Mask::MESSAGES,
            Interrupt::PriorityMessagePending => Mask::PRIORITY_MESSAGES,
            Interrupt::MessageComplete => Mask::REPLIES,
            Interrupt::PriorityMessageComplete => Mask::PRIORITY_REPLIES,
            about_paths => {
                let bit = 0x80 >> (about_paths as u8 - 1);
                return mask.0 & Mask::CONTROL.0 != 0 && control.0 & bit != 0;
            }
        };
        mask.0 & bit.0 != 0
    }
}
