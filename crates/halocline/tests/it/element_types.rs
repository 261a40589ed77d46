//! Bytes that are no value of the element type they arrive in: every way there is open to programs without `unsafe`.
#![forbid(unsafe_code)]

use crate::on_ranks;
use halocline::{
    Array, Bool, Communicator, Decomposed, Direction, Element, ElementType, Error, Field, Halo, HaloExchange,
    Layout, Pattern, RegularGrid,
};

const OWNED: usize = 4;

/// A periodic ring of two domains, with a halo of one cell at either side.
fn ring(comm: &Communicator) -> Result<Pattern, Error> {
    RegularGrid::new([2 * OWNED]).periodic([true]).decompose(2)?.pattern(comm, Halo::uniform(1))
}

fn zeros<T: Element>(comm: &Communicator) -> Result<Array<T>, Error> {
    Array::zeros(comm, &[OWNED + 2])
}

/// The same memory, as elements of another type.
fn viewed(array: &Field, element: ElementType) -> Result<Field, Error> {
    array.view(array.base(), Layout::c_order(element, &[OWNED + 2])?)
}

/// Rank 1 sends bytes that are 2 as `sent`, rank 0 receives them in an array of `Bool` as `received`.
fn receives_twos(sent: ElementType, received: ElementType) -> Result<(), Error> {
    on_ranks(2, |comm| {
        let pattern = ring(comm)?;
        let (bytes, flags) = (zeros::<u8>(comm)?, zeros::<Bool>(comm)?);
        bytes.write()?.fill(2);
        let field = match comm.rank() {
            0 => viewed(&flags, received)?,
            _ => viewed(&bytes, sent)?,
        };
        HaloExchange::bind(comm, [(&pattern, &field)])?.exchange()?.wait()?;
        if comm.rank() == 0 {
            check(&flags.read()?);
        }
        Ok(())
    })
}

/// The halo cells are true like any other that is, the owned ones false.
fn check(flags: &[Bool]) {
    let expected: Vec<bool> = (0..OWNED + 2).map(|at| at == 0 || at == OWNED + 1).collect();
    assert_eq!(flags.iter().map(|flag| flag.get()).collect::<Vec<_>>(), expected);
    assert_eq!(flags[0], Bool::from(true));
    assert_eq!(format!("{:?}", flags[0]), "true");
    // A look-up by the value as an index.
    assert_eq!(["no", "yes"][usize::from(bool::from(flags[0]))], "yes");
}

#[test]
fn bytes_received_through_a_view_of_bools_are_true_or_false() -> Result<(), Error> {
    receives_twos(ElementType::U8, ElementType::U8)
}

#[test]
fn opaque_bytes_received_as_bools_are_true_or_false() -> Result<(), Error> {
    receives_twos(ElementType::Opaque(1), ElementType::Bool)
}

#[test]
fn bools_that_are_sent_from_a_view_of_bytes_are_true_or_false() -> Result<(), Error> {
    receives_twos(ElementType::Bool, ElementType::Opaque(1))
}

#[test]
fn any_bytes_unpacked_into_bools_are_true_or_false() -> Result<(), Error> {
    on_ranks(2, |comm| {
        let pattern = ring(comm)?;
        let flags = zeros::<Bool>(comm)?;
        let halo = HaloExchange::bind(comm, [(&pattern, &flags)])?;
        let peer = 1 - comm.rank();
        let message = vec![2; halo.message_bytes(peer, Direction::Receive)?];
        halo.unpack(peer, &message)?;
        check(&flags.read()?);
        Ok(())
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Water {
    temperature: f64,
    velocity: [f32; 3],
    tracers: [[f32; 2]; 2],
    flags: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(transparent)]
struct Celsius(f64);

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Largest {
    levels: [f32; 64],
}

impl Water {
    fn of(number: usize) -> Self {
        let number = number as f32;
        let tracers = [[number, 2.0 * number], [3.0 * number, 4.0 * number]];
        Self { temperature: number.into(), velocity: [number, 0.5, -number], tracers, flags: 7 }
    }
}

#[test]
fn structs_with_derived_elements_are_exchanged() -> Result<(), Error> {
    assert_eq!((Water::TYPE.size(), Celsius::TYPE.size(), Largest::TYPE.size()), (40, 8, 256));
    assert!(
        Water::RECORD.starts_with("Water {") && Water::RECORD.contains("velocity: [f32; 3]"),
        "{}",
        Water::RECORD
    );
    on_ranks(2, |comm| {
        let pattern = ring(comm)?;
        let (water, celsius) = (zeros::<Water>(comm)?, zeros::<Celsius>(comm)?);
        let largest = zeros::<Largest>(comm)?;
        let first = comm.rank() * OWNED;
        for at in 0..OWNED {
            water.write()?[1 + at] = Water::of(first + at);
            celsius.write()?[1 + at] = Celsius((first + at) as f64);
            largest.write()?[1 + at].levels = [(first + at) as f32; 64];
        }
        HaloExchange::bind(comm, ((&pattern, &water), (&pattern, &celsius), (&pattern, &largest)))?
            .exchange()?
            .wait()?;
        for at in 0..OWNED + 2 {
            let cell = (first + 2 * OWNED + at - 1) % (2 * OWNED);
            assert_eq!(water.read()?[at], Water::of(cell));
            assert_eq!(celsius.read()?[at], Celsius(cell as f64));
            assert_eq!(largest.read()?[at].levels, [cell as f32; 64]);
        }
        Ok(())
    })
}

#[test]
fn structs_of_different_names_are_not_exchanged_with_each_other() {
    let outcome = on_ranks(2, |comm| {
        let (pattern, celsius) = (ring(comm)?, zeros::<Celsius>(comm)?);
        let kelvin = Field::allocate(
            comm,
            Layout::c_order(ElementType::Opaque(8), &[OWNED + 2])?.named("Kelvin { 0: f64 }"),
        )?;
        let field = if comm.rank() == 0 { &*celsius } else { &kelvin };
        HaloExchange::bind(comm, [(&pattern, field)]).map(drop)
    });
    let text = outcome.expect_err("the names differ").to_string();
    assert!(text.contains("Celsius { 0: f64 }") && text.contains("Kelvin { 0: f64 }"), "{text}");
}

/// Two structs of one name. Their nested structs have one name and different fields.
mod nested {
    use halocline::Element;

    pub mod celsius {
        use super::*;

        #[derive(Clone, Copy, Element)]
        #[repr(C)]
        pub struct Point {
            celsius: f64,
        }

        #[derive(Clone, Copy, Element)]
        #[repr(C)]
        pub struct Profile {
            points: [[Point; 2]; 3],
            top: Point,
        }
    }

    pub mod kelvin {
        use super::*;

        #[derive(Clone, Copy, Element)]
        #[repr(C)]
        pub struct Point {
            kelvin: f64,
        }

        #[derive(Clone, Copy, Element)]
        #[repr(C)]
        pub struct Profile {
            points: [[Point; 2]; 3],
            top: Point,
        }
    }
}

#[test]
fn structs_whose_nested_structs_differ_are_not_exchanged_with_each_other() {
    assert_eq!(
        nested::celsius::Profile::RECORD,
        "Profile { points: [[Point { celsius: f64 }; 2]; 3], top: Point { celsius: f64 } }"
    );
    let outcome = on_ranks(2, |comm| {
        let pattern = ring(comm)?;
        let (celsius, kelvin) =
            (zeros::<nested::celsius::Profile>(comm)?, zeros::<nested::kelvin::Profile>(comm)?);
        let field: &Field = if comm.rank() == 0 { &celsius } else { &kelvin };
        HaloExchange::bind(comm, [(&pattern, field)]).map(drop)
    });
    let text = outcome.expect_err("the fields of the nested structs differ").to_string();
    assert!(text.contains("celsius: f64") && text.contains("kelvin: f64"), "{text}");
}

#[derive(Clone, Copy, Debug, Element)]
#[repr(C)]
struct Spectrum {
    power: [f64; 32],
}

#[test]
fn elements_that_are_copied_in_units_are_named_as_given() -> Result<(), Error> {
    on_ranks(2, |comm| {
        let pattern = ring(comm)?;
        let (spectra, numbers) = (zeros::<Spectrum>(comm)?, zeros::<f64>(comm)?);
        let field: &Field = if comm.rank() == 0 { &spectra } else { &numbers };
        let error = HaloExchange::bind(comm, [(&pattern, field)]).expect_err("a struct and a number");
        let (spectrum, number) = ("1 x Spectrum { power: [f64; 32] }", "1 x float64");
        let (here, there) = if comm.rank() == 0 { (spectrum, number) } else { (number, spectrum) };
        let expected = format!("a cell has {here} here and {there} there;");
        assert!(error.to_string().contains(&expected), "{error}");
        Ok(())
    })
}
