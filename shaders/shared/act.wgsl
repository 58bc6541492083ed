// Activation of the gate:
//   silu(x) = x / (1 + exp(-x));  gelu_tanh(x) = 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3)
//   (the second form has no cancellation where tanh comes near -1)
fn act(gate: f32, gelu: bool) -> f32 {
    var inner = gate;
    if (gelu) {
        inner = 2.0 * (0.7978846 * (gate + 0.044715 * gate * gate * gate));
    }
    // exp(88) is the last finite one; past it the quotient is 0 to the last normal bit.
    return gate / (1.0 + exp(-max(inner, -88.0)));
}
