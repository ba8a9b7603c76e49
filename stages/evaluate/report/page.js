"use strict";
// Draws every figure, and again in the other colours when the reader's theme changes.
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function template() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: color("--line"), zerolinecolor: color("--line"), linecolor: color("--line"), automargin: true };
  return {
    layout: {
      paper_bgcolor: color("--paper"),
      plot_bgcolor: color("--paper"),
      font: { color: color("--ink"), family: "system-ui, Segoe UI, Roboto, sans-serif", size: 12 },
      xaxis: axis,
      yaxis: axis,
      legend: { bgcolor: "rgba(0,0,0,0)" },
      hoverlabel: { bgcolor: color("--tint"), bordercolor: color("--line"), font: { color: color("--ink") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: color("--soft"), activecolor: color("--ink") },
    },
  };
}

// Only buttons that work on this machine alone.
const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];
const config = { responsive: true, displaylogo: false, modeBarButtons: buttons };

function draw() {
  for (const source of document.querySelectorAll("script[data-figure]")) {
    const figure = JSON.parse(source.textContent);
    figure.layout.template = template();
    Plotly.react(source.dataset.figure, figure.data, figure.layout, config);
  }
}

draw();
dark.addEventListener("change", draw);
