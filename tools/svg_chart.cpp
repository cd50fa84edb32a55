// SPDX-License-Identifier: Apache-2.0
// Axes from zero to the maximum values, whole numbers along x.
#include "svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tinyloop {
namespace {

constexpr double kLeft = 60.0, kTop = 40.0, kWidth = 480.0, kHeight = 300.0;
constexpr const char* kColours[] = {"#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad",
                                    "#d68910", "#34495e", "#16a085", "#7f8c8d"};

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else
      safe += c;
  }
  return safe;
}

}  // namespace

std::string SvgChart::svg() const {
  double right = 1.0, top = std::max(1.0, line);
  for (const SvgSeries& one : series) {
    for (const auto& [x, y] : one.points) {
      right = std::max(right, x);
      top = std::max(top, y);
    }
  }
  right += 0.5;
  top *= 1.1;
  const auto at_x = [&](double x) { return kLeft + kWidth * x / right; };
  const auto at_y = [&](double y) { return kTop + kHeight * (1.0 - y / top); };
  std::string text =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"400\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"720\" height=\"400\" fill=\"white\"/>\n";
  const auto write = [&](double x, double y, const char* anchor, const std::string& words) {
    text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y,
                        anchor, escaped(words));
  };
  const auto draw = [&](double x1, double y1, double x2, double y2, const char* style) {
    text += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1,
                        y1, x2, y2, style);
  };
  write(kLeft + kWidth / 2, kTop - 16, "middle", title);
  write(kLeft + kWidth / 2, kTop + kHeight + 40, "middle", x_label);
  write(kLeft, kTop - 4, "middle", y_label);
  draw(kLeft, kTop, kLeft, kTop + kHeight, "stroke=\"black\"");
  draw(kLeft, kTop + kHeight, kLeft + kWidth, kTop + kHeight, "stroke=\"black\"");
  for (int x = 1; x <= static_cast<int>(right); ++x) {
    write(at_x(x), kTop + kHeight + 18, "middle", fmt::format("{}", x));
  }
  const double step = top > 5.0 ? std::ceil(top / 5.0) : top > 2.0 ? 0.5 : 0.25;
  for (int i = 0; i * step <= top; ++i) {
    draw(kLeft - 4, at_y(i * step), kLeft, at_y(i * step), "stroke=\"black\"");
    write(kLeft - 8, at_y(i * step) + 4, "end", fmt::format("{:.2f}", i * step));
  }
  if (line > 0.0) {
    draw(kLeft, at_y(line), kLeft + kWidth, at_y(line), "stroke=\"gray\" stroke-dasharray=\"4\"");
  }
  for (std::size_t i = 0; i < series.size(); ++i) {
    const char* colour = kColours[i % std::size(kColours)];
    std::string points;
    for (const auto& [x, y] : series[i].points) {
      points += fmt::format("{:.1f},{:.1f} ", at_x(x), at_y(y));
      text += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", at_x(x),
                          at_y(y), colour);
    }
    text += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\"/>\n", points, colour);
    const double y = kTop + 16.0 * static_cast<double>(i);
    draw(kLeft + kWidth + 20, y, kLeft + kWidth + 40, y,
         fmt::format("stroke=\"{}\"", colour).c_str());
    write(kLeft + kWidth + 46, y + 4, "start", series[i].name);
  }
  return text + "</svg>\n";
}

}  // namespace tinyloop
