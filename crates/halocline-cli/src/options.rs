//! Arguments that several commands share.

use crate::error::CommandError;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use halocline::{Decomposition, ElementType, Layout, LayoutError, LinkChoice, RegularGrid};
use std::fmt;
use std::str::FromStr;

/// Numbers along the axes of a grid, one to four: cells, or blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grid(pub(crate) Vec<usize>);

impl FromStr for Grid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let extents: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
        match extents {
            Ok(extents) if extents.len() <= 4 && extents.iter().all(|&n| n > 0) => Ok(Self(extents)),
            _ => Err(format!("{text:?} is no grid; give one to four numbers above 0, such as 64x64x64")),
        }
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(usize::to_string).collect::<Vec<_>>().join("x"))
    }
}

/// Numbers of blocks along the axes of a grid, one to four.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blocks(Vec<usize>);

impl FromStr for Blocks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| {
            format!(
                "{text:?} is no list of blocks; give the number of blocks along each axis, 1 or more each, such as 2x2"
            )
        };
        text.parse::<Grid>().map(|grid| Self(grid.0)).map_err(wrong)
    }
}

/// Names of the axes, in their order.
pub(crate) const AXES: [char; 4] = ['x', 'y', 'z', 't'];

/// Which axes are periodic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Periodic {
    None,
    All,
    /// By name, in the order of [`AXES`].
    Named(Vec<usize>),
    /// A flag for each axis.
    Flags(Vec<bool>),
}

impl Periodic {
    /// A flag for each axis of a grid. The error says why the axes do not fit it.
    pub(crate) fn flags(&self, axes: usize) -> Result<Vec<bool>, String> {
        match self {
            Self::None => Ok(vec![false; axes]),
            Self::All => Ok(vec![true; axes]),
            Self::Named(named) => match named.iter().find(|&&axis| axis >= axes) {
                None => Ok((0..axes).map(|axis| named.contains(&axis)).collect()),
                Some(&axis) => {
                    Err(format!("`--periodic` names axis {}, but the grid has {axes}", AXES[axis]))
                }
            },
            Self::Flags(flags) if flags.len() == axes => Ok(flags.clone()),
            Self::Flags(flags) => {
                Err(format!("`--periodic` has {} digits for the {axes} axes of the grid", flags.len()))
            }
        }
    }
}

impl fmt::Display for Periodic {
    /// Names, as far as there are any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |axes: &[usize]| axes.iter().map(|&axis| AXES[axis].to_string()).collect::<Vec<_>>().join(",");
        match self {
            Self::All => f.write_str("all"),
            Self::Named(named) => f.write_str(&list(named)),
            Self::Flags(flags) if flags.contains(&true) => {
                let axes: Vec<usize> = (0..flags.len().min(AXES.len())).filter(|&axis| flags[axis]).collect();
                f.write_str(&list(&axes))
            }
            Self::None | Self::Flags(_) => f.write_str("none"),
        }
    }
}

impl FromStr for Periodic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} names no axes; give none, all, names such as x,y, or a digit an axis, such as 110"
            )
        };
        match text {
            "none" => return Ok(Self::None),
            "all" => return Ok(Self::All),
            "" => return Err(wrong()),
            _ => {}
        }
        if text.chars().all(|digit| digit == '0' || digit == '1') {
            return Ok(Self::Flags(text.chars().map(|digit| digit == '1').collect()));
        }
        let axis = |name: &str| AXES.iter().position(|axis| name.len() == 1 && name.starts_with(*axis));
        let axes: Option<Vec<usize>> = text.split(',').map(axis).collect();
        axes.map(Self::Named).ok_or_else(wrong)
    }
}

/// How a regular grid is divided among ranks.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Division {
    /// Periodic axes: none, all, names such as x,y, or a digit an axis, such as 110
    #[arg(long, value_name = "AXES", default_value = "none")]
    pub(crate) periodic: Periodic,
    /// Blocks along each axis instead of those that cut the fewest faces
    #[arg(long, value_name = "AxBxC")]
    decomposition: Option<Blocks>,
}

impl Division {
    /// The blocks along each axis, if they are given.
    pub(crate) fn blocks(&self) -> Option<&[usize]> {
        self.decomposition.as_ref().map(|blocks| &blocks.0[..])
    }

    /// The parts of a grid with these extents. The error says what does not fit it.
    pub(crate) fn of(&self, extents: &[usize], ranks: usize) -> Result<Decomposition, CommandError> {
        let periodic = self.periodic.flags(extents.len()).map_err(CommandError::Usage)?;
        let grid = RegularGrid::new(extents).periodic(periodic);
        Ok(match &self.decomposition {
            Some(Blocks(blocks)) => grid.decompose_into(&blocks[..], ranks),
            None => grid.decompose(ranks),
        }?)
    }
}

/// Element types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Dtype {
    F64,
    F32,
    I64,
    I32,
}

impl Dtype {
    /// Refuses elements without a sign for fields that have two components.
    pub(crate) fn check_components(self, components: usize) -> Result<(), CommandError> {
        if components == 1 || self.element().sign_distance().is_some() {
            return Ok(());
        }
        Err(CommandError::usage(format!(
            "`--dtype {}` with a `--quantity` of two components, which change their sign across seams; give f64 or f32",
            name(&self)
        )))
    }

    pub(crate) fn element(self) -> ElementType {
        match self {
            Self::F64 => ElementType::F64,
            Self::F32 => ElementType::F32,
            Self::I64 => ElementType::I64,
            Self::I32 => ElementType::I32,
        }
    }
}

/// Memory order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Order {
    C,
    F,
}

impl Order {
    pub(crate) fn layout(self, dtype: Dtype, extents: &[usize]) -> Result<Layout, LayoutError> {
        match self {
            Self::C => Layout::c_order(dtype.element(), extents),
            Self::F => Layout::fortran_order(dtype.element(), extents),
        }
    }
}

/// How links move their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Link {
    Auto,
    Push,
    Pull,
    Mailbox,
    Message,
    Nccl,
}

impl Link {
    pub(crate) fn choice(self) -> LinkChoice {
        match self {
            Self::Auto => LinkChoice::Auto,
            Self::Push => LinkChoice::Push,
            Self::Pull => LinkChoice::Pull,
            Self::Mailbox => LinkChoice::Mailbox,
            Self::Message => LinkChoice::Message,
            Self::Nccl => LinkChoice::Nccl,
        }
    }
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

/// The name of a value as the command line has it.
pub(crate) fn name(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A parser of values by their names.
pub(crate) fn named<T: Copy + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(values.map(|(name, _)| name));
    names.try_map(move |given| {
        values.iter().find(|(name, _)| *name == given).map(|named| named.1).ok_or("no such name")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periodic_axes_are_named_or_flagged() {
        let flags = |text: &str, axes| text.parse::<Periodic>().and_then(|periodic| periodic.flags(axes));
        assert_eq!(flags("x,z", 3), Ok(vec![true, false, true]));
        assert_eq!(flags("110", 3), Ok(vec![true, true, false]));
        assert_eq!(flags("all", 2), Ok(vec![true, true]));
        assert_eq!(flags("none", 1), Ok(vec![false]));
        assert!(flags("z", 2).unwrap_err().contains("names axis z, but the grid has 2"));
        assert!(flags("11", 3).unwrap_err().contains("2 digits for the 3 axes"));
        for text in ["", "xy", "q", "x,", "012"] {
            assert!(text.parse::<Periodic>().unwrap_err().contains("such as 110"), "{text}");
        }
    }

    #[test]
    fn grids_have_one_to_four_numbers_above_zero() {
        assert_eq!("4x5".parse::<Grid>(), Ok(Grid(vec![4, 5])));
        for text in ["", "0x4", "1x1x1x1x1", "4x", "-1x2", "99999999999999999999x1"] {
            assert!(text.parse::<Grid>().unwrap_err().contains("such as 64x64x64"), "{text}");
        }
    }
}
