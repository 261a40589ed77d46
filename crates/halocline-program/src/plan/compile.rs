//! Compiles a signature to a plan.

use super::{
    Action, ArgumentKind, ArgumentPlan, ArrayPlan, Check, Copied, InitParameter, Part, Plan, Relation, Rule,
    Side, Span,
};
use crate::ScalarType;
use crate::error::ProgramError;
use crate::expression::Expression;
use crate::signature::{Argument, ArrayArgument, Dimension, Interface, Quantity, Signature, Streams};
use crate::stub::Placer;
use std::collections::HashMap;

/// The most parameters of a C function, and the most dimensions of an array.
const MOST_PARAMETERS: usize = 4096;
const MOST_DIMENSIONS: usize = 64;

/// A name of the signature.
struct Name {
    slot: usize,
    /// Of arrays `None`.
    scalar: Option<ScalarType>,
    /// Whether a call knows its value at this point of the compilation.
    is_defined: bool,
    /// Whether a check or `init` needs its value.
    has_dependents: bool,
}

struct Compiler<'a> {
    signature: &'a Signature,
    names: HashMap<&'a str, Name>,
    checks: Vec<Check>,
}

impl Plan {
    /// Compiles a signature.
    pub(crate) fn compile(signature: &Signature) -> Result<Self, ProgramError> {
        let invalid = |(what, why): Fault| ProgramError::Signature {
            program: if signature.program.is_empty() { "without a name" } else { &signature.program }.into(),
            what: what.into(),
            why: why.into(),
        };
        compile(signature).map_err(invalid)
    }
}

/// An error of a signature: the part, and the reason.
type Fault = (String, String);

fn fault<T>(what: impl Into<String>, why: impl Into<String>) -> Result<T, Fault> {
    Err((what.into(), why.into()))
}

fn compile(signature: &Signature) -> Result<Plan, Fault> {
    if signature.program.is_empty() {
        return fault("program", "it has no name");
    }
    if signature.parameters.len() > MOST_PARAMETERS {
        return fault("parameters", format!("there are more than {MOST_PARAMETERS}"));
    }
    check_streams(signature)?;
    let mut compiler = Compiler { signature, names: names(signature)?, checks: Vec::new() };
    let has_state = signature.interface == Interface::DaCe;
    if !has_state && !signature.init.is_empty() {
        return fault("init", "a C function without a state has no init");
    }
    let (copies, frame_words) = compiler.place(has_state)?;
    let words = compiler.place_rest(frame_words);
    let mut rules: Vec<Vec<Rule>> = signature.arguments.iter().map(|_| Vec::new()).collect();
    // Extents and bounds of all arrays first: the stride of a dimension with one index says nothing about a symbol.
    for strides in [false, true] {
        for (position, argument) in signature.arguments.iter().enumerate() {
            if let Argument::Array(array) = argument {
                compiler.rules(position, array, strides, &mut rules[position])?;
            }
        }
    }
    compiler.cover_and_close()?;
    let init = compiler.init()?;
    let arguments: Box<[ArgumentPlan]> = signature
        .arguments
        .iter()
        .zip(rules)
        .map(|(given, rules)| compiler.argument(given, rules.into()))
        .collect();
    let is_optional =
        |plan: &ArgumentPlan| matches!(plan.kind, ArgumentKind::Scalar { is_optional: true, .. });
    Ok(Plan {
        program: signature.program.as_str().into(),
        optional: (0..arguments.len()).filter(|&at| is_optional(&arguments[at])).collect(),
        arguments,
        checks: compiler.checks.into(),
        copies,
        init,
        stream: signature.stream.as_deref().map(|name| compiler.names[name].slot),
        frame_words,
        words,
    })
}

/// Refuses streams that the interface cannot give to the program.
fn check_streams(signature: &Signature) -> Result<(), Fault> {
    match (signature.interface, &signature.stream, signature.streams) {
        (Interface::DaCe, Some(_), _) => fault(
            "stream",
            "DaCe's programs get their streams by functions of the library, not as a parameter",
        ),
        (Interface::C, _, Some(Streams::Internal)) => {
            fault("streams", "nothing gives a C function its internal streams; give it a parameter `stream`")
        }
        (Interface::C, None, Some(Streams::Caller)) => fault(
            "streams",
            "the C function has no parameter for the stream of the caller; name it as `stream`",
        ),
        (Interface::C, Some(_), Some(Streams::Default)) => {
            fault("stream", "a program of the default stream takes no stream")
        }
        (_, Some(name), _) if signature.parameters.iter().filter(|other| *other == name).count() != 1 => {
            fault("stream", format!("{name:?} is not the name of exactly one parameter"))
        }
        _ => Ok(()),
    }
}

/// All names with their types; the slots come later.
fn names(signature: &Signature) -> Result<HashMap<&str, Name>, Fault> {
    let mut names = HashMap::new();
    let arguments = signature.arguments.iter().map(|argument| match argument {
        Argument::Array(array) => (array.name.as_str(), None, true),
        Argument::Scalar(scalar) => (scalar.name.as_str(), Some(scalar.scalar), !scalar.optional),
    });
    let symbols = signature.symbols.iter().map(|symbol| (symbol.name.as_str(), Some(symbol.scalar), false));
    // The parameter for the stream is passed as an address is.
    let stream = signature.stream.iter().map(|name| (name.as_str(), None, true));
    for (name, scalar, is_defined) in arguments.chain(symbols).chain(stream) {
        let is_symbol = !is_defined;
        if name.is_empty() {
            return fault("arguments", "a name is empty");
        }
        match scalar {
            Some(scalar) if scalar.is_complex() => {
                return fault(name, "a complex number cannot be passed by value");
            }
            Some(scalar) if is_symbol && scalar.integer_range().is_none() => {
                return fault(name, format!("a symbol or an optional scalar is an integer, not {scalar}"));
            }
            _ => {}
        }
        let new = Name { slot: usize::MAX, scalar, is_defined, has_dependents: false };
        if names.insert(name, new).is_some() {
            return fault(name, "the name occurs twice among arguments, symbols and the stream");
        }
    }
    Ok(names)
}

impl Compiler<'_> {
    /// Gives the parameters their words. Returns the copies for names that occur twice, and the words of the frame.
    fn place(&mut self, has_state: bool) -> Result<(Box<[Copied]>, usize), Fault> {
        let (mut placer, mut copies) = (Placer::default(), Vec::new());
        if has_state {
            placer.place(false);
        }
        for parameter in &self.signature.parameters {
            let Some(name) = self.names.get_mut(parameter.as_str()) else {
                return fault("parameters", format!("{parameter:?} is neither an argument nor a symbol"));
            };
            let word = placer.place(name.scalar.is_some_and(ScalarType::is_floating_argument));
            match name.slot {
                usize::MAX => name.slot = word,
                slot => copies.push(Copied { slot, word }),
            }
        }
        Ok((copies.into(), placer.words()))
    }

    /// Gives the other names slots behind the frame. Returns the words of a call.
    fn place_rest(&mut self, frame_words: usize) -> usize {
        let mut words = frame_words;
        for name in self.names.values_mut().filter(|name| name.slot == usize::MAX) {
            name.slot = words;
            words += 1;
        }
        words
    }

    /// The rules for the strides of an array's dimensions, or for their other parts.
    fn rules(
        &mut self,
        position: usize,
        array: &ArrayArgument,
        strides: bool,
        rules: &mut Vec<Rule>,
    ) -> Result<(), Fault> {
        if array.dimensions.len() > MOST_DIMENSIONS {
            return fault(&array.name, format!("it has more than {MOST_DIMENSIONS} dimensions"));
        }
        for (at, dimension) in array.dimensions.iter().enumerate() {
            let parts = [
                (Part::Extent, &dimension.extent),
                (Part::Start, &dimension.start),
                (Part::Stop, &dimension.stop),
                (Part::Stride, &dimension.stride),
            ];
            for (part, quantity) in parts.into_iter().filter(|(part, _)| (*part == Part::Stride) == strides) {
                let Some(quantity) = quantity else { continue };
                let action = match quantity {
                    Quantity::Constant(value) => Action::Constant(*value),
                    Quantity::Expression(text) => match self.defined_by(text.trim()) {
                        Some(action) => action,
                        None => {
                            let relation = Relation::Equal(at, part, self.expression(&array.name, quantity)?);
                            self.checks.push(Check { argument: position, relation });
                            continue;
                        }
                    },
                };
                rules.push(Rule { dimension: at, part, action });
            }
        }
        Ok(())
    }

    /// Defines a symbol that has no value yet.
    fn defined_by(&mut self, text: &str) -> Option<Action> {
        let name = self.names.get_mut(text).filter(|name| !name.is_defined)?;
        let (low, high) = name.scalar?.integer_range()?;
        name.is_defined = true;
        let limit = |value: i128| value.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        Some(Action::Define { slot: name.slot, low: limit(low), high: limit(high), symbol: text.into() })
    }

    fn expression(&mut self, of: &str, quantity: &Quantity) -> Result<Expression, Fault> {
        let text = match quantity {
            Quantity::Constant(value) => return constant(*value).map_err(|why| (of.to_owned(), why)),
            Quantity::Expression(text) => text,
        };
        let names = &mut self.names;
        let mut slot = |symbol: &str| match names.get_mut(symbol) {
            Some(name) if name.scalar.is_some_and(|scalar| scalar.integer_range().is_some()) => {
                name.has_dependents = true;
                Ok(name.slot)
            }
            Some(_) => Err(format!("{symbol:?} is no integer")),
            None => Err(format!("{symbol:?} is neither a scalar argument nor a symbol")),
        };
        Expression::compile(text, &mut slot).map_err(|why| (of.to_owned(), why))
    }

    /// Compiles the bounds, and refuses names without a value.
    fn cover_and_close(&mut self) -> Result<(), Fault> {
        let signature = self.signature;
        for (argument, array) in signature.arguments.iter().enumerate() {
            let Argument::Array(array) = array else { continue };
            for (dimension, Dimension { covers, .. }) in array.dimensions.iter().enumerate() {
                if let Some(covers) = covers {
                    let sides = [Side { dimension, span: self.span(&array.name, covers)? }].into();
                    let relation = Relation::Covers { sides, over: Box::default() };
                    self.checks.push(Check { argument, relation });
                }
            }
            for accessed in &array.accesses {
                if accessed.indices.len() != array.dimensions.len() {
                    return fault(&array.name, "an entry of accesses has another number of dimensions");
                }
                let known =
                    accessed.indices.iter().enumerate().filter_map(|(at, side)| Some((at, side.as_ref()?)));
                let sides: Vec<Side> = known
                    .map(|(dimension, side)| Ok(Side { dimension, span: self.span(&array.name, side)? }))
                    .collect::<Result<_, Fault>>()?;
                let over = accessed.over.iter().map(|span| self.span(&array.name, span));
                let over = over.collect::<Result<Vec<_>, _>>()?.into();
                self.checks
                    .push(Check { argument, relation: Relation::Covers { sides: sides.into(), over } });
            }
        }
        let mut open: Vec<&str> =
            self.names.iter().filter(|(_, name)| !name.is_defined).map(|(text, _)| *text).collect();
        open.sort_unstable();
        match open.first() {
            Some(name) => {
                fault(*name, "nothing gives it a value; name it as an extent, start, stop or stride")
            }
            None => Ok(()),
        }
    }

    fn span(&mut self, of: &str, [first, end]: &[Quantity; 2]) -> Result<Span, Fault> {
        Ok(Span { first: self.expression(of, first)?, end: self.expression(of, end)? })
    }

    fn init(&mut self) -> Result<Box<[InitParameter]>, Fault> {
        if self.signature.init.len() > MOST_PARAMETERS {
            return fault("init", format!("there are more than {MOST_PARAMETERS}"));
        }
        let mut placer = Placer::default();
        let mut parameters = Vec::new();
        for text in &self.signature.init {
            let name = self.names.get_mut(text.as_str());
            let Some((name, scalar)) = name.and_then(|name| name.scalar.map(|scalar| (name, scalar))) else {
                return fault("init", format!("{text:?} is neither a scalar argument nor a symbol"));
            };
            name.has_dependents = true;
            let word = placer.place(scalar.is_floating_argument());
            parameters.push(InitParameter { name: text.as_str().into(), slot: name.slot, scalar, word });
        }
        Ok(parameters.into())
    }

    fn argument(&self, given: &Argument, rules: Box<[Rule]>) -> ArgumentPlan {
        let name = &self.names[given.name()];
        let kind = match given {
            Argument::Array(array) => ArgumentKind::Array(ArrayPlan {
                element: array.element,
                device: array.device,
                access: array.access,
                dimensions: array.dimensions.len(),
                names: (array.dimensions.iter())
                    .map(|dimension| dimension.name.as_deref().unwrap_or_default().into())
                    .collect(),
                rules,
            }),
            Argument::Scalar(scalar) => ArgumentKind::Scalar {
                scalar: scalar.scalar,
                is_optional: scalar.optional,
                has_dependents: name.has_dependents,
            },
        };
        ArgumentPlan { name: given.name().into(), slot: name.slot, kind }
    }
}

fn constant(value: i64) -> Result<Expression, String> {
    let magnitude = value.unsigned_abs();
    let text = if value < 0 { format!("0 - {magnitude}") } else { magnitude.to_string() };
    Expression::compile(&text, &mut |name| Err(format!("no symbol {name}")))
}
