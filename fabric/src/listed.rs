//! Enums that can list themselves.

/// An enum with a list of its variants, `ALL`, in their order; and, if a name is written beside each, `name`.
#[macro_export]
macro_rules! listed {
    ($(#[$about:meta])* pub enum $type:ident {
        $($(#[$doc:meta])* $variant:ident $(= $number:literal)?,)*
    }) => {
        $(#[$about])*
        pub enum $type {
            $($(#[$doc])* $variant $(= $number)?,)*
        }

        impl $type {
            /// All of them, in their order.
            pub const ALL: [$type; [$(stringify!($variant)),*].len()] = [$($type::$variant),*];
        }
    };
    ($(#[$about:meta])* pub enum $type:ident {
        $($(#[$doc:meta])* $variant:ident $(= $number:literal)? => $name:literal,)*
    }) => {
        $crate::listed! {
            $(#[$about])*
            pub enum $type {
                $($(#[$doc])* $variant $(= $number)?,)*
            }
        }

        impl $type {
            /// As people read it.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }
    };
}
